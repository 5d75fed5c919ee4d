"""`odometer budget`: add a budget to a dataset, or change one."""

from typing import Annotated, Any

import typer

from odometer_client.connection import DEFAULT_URL
from privacy_odometer.cli import errors, parsing
from privacy_odometer.cli.budget_tables import budget_blocks
from privacy_odometer.cli.connection import connected
from privacy_odometer.cli.errors import end
from privacy_odometer.cli.options import Dataset, Format, Key, Output, Url
from privacy_odometer.cli.output import console, print_json

app = typer.Typer(help="Add a budget to a dataset, or change one.", no_args_is_help=True)
_STATE = frozenset(
    {"version", "etag", "covers", "limit", "spent", "left", "used", "held", "renews", "warning"}
)
"""The fields of a budget's state that are not part of its document."""


@app.command()
def add(
    dataset: Dataset,
    budget: Annotated[
        str,
        typer.Argument(
            metavar="NAME:KIND:LIMITS",
            help="life:approximate:epsilon=3,delta=1e-5, or JSON. For a part of the dataset: scope=team/* or "
            "scope=partition/eu; to restart each day: window=day; to reserve a share for a team: "
            "reserved=research:0.3.",
            show_default=False,
        ),
    ],
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Add a budget. It covers the charges from now on."""
    document = parsing.budget(budget)
    with connected(url, key) as client:
        if document.get("kind") == "approximate" and "delta" not in document:
            document["delta"] = client.dataset(dataset)["delta"]  # the δ that the dataset was opened with
        _show(client.add_budget(dataset, document), format_)


@app.command("set")
def set_(
    dataset: Dataset,
    name: Annotated[str, typer.Argument(metavar="BUDGET", help="The budget's name.", show_default=False)],
    changes: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE…",
            help="The fields to change: epsilon=4, reserved=ads:0.5.",
            show_default=False,
        ),
    ],
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Change a budget: `odometer budget set adult life epsilon=4`. The ledger records the change.

    A new limit keeps the budget's weights. After any other change the budget covers the charges from now on.
    """
    changed = parsing.budget_parts(changes)
    with connected(url, key) as client:
        found = {budget["name"]: budget for budget in client.dataset(dataset).budgets}
        if name not in found:
            end(
                f"dataset {dataset!r} has no budget {name!r}; its budgets: {', '.join(found) or 'none'}",
                errors.REFUSED,
            )
        budget = found[name]
        kept = {field: value for field, value in budget.items() if field not in _STATE and value is not None}
        _show(client.set_budget(dataset, name, kept | changed, etag=budget["etag"]), format_)


def _show(budget: Any, format_: Format) -> None:
    if format_ is Format.json:
        print_json(budget)
        return
    budget_blocks([budget])
    if budget.get("warning"):
        console().print(f"Note: {budget['warning']}.")
