"""`odometer budget`: add a budget to a dataset, or change one."""

from typing import Annotated, Any

import typer

from odometer_client.connection import DEFAULT_URL
from privacy_odometer.cli import errors, parsing
from privacy_odometer.cli.output import Format, Key, Output, Url, connected, end, out, print_json
from privacy_odometer.cli.tables import budget_blocks

app = typer.Typer(help="Add a budget to a dataset, or change one.", no_args_is_help=True)
# What a state says beside the budget's own document.
_STATE = frozenset(
    {"version", "etag", "covers", "limit", "spent", "left", "used", "held", "renews", "warning"}
)
Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="The dataset's name.", show_default=False)]


@app.command()
def add(
    dataset: Dataset,
    budget: Annotated[
        str,
        typer.Argument(
            metavar="NAME:KIND:LIMITS",
            help="life:approximate:epsilon=3,delta=1e-5, or JSON. Of a part: scope=team/*, "
            "scope=partition/eu; starting anew: window=day; kept for teams: reserved=research:0.3.",
            show_default=False,
        ),
    ],
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Add a budget. Its promise covers what is charged from now on."""
    document = parsing.budget(budget)
    with connected(url, key) as client:
        if document.get("kind") == "approximate" and "delta" not in document:
            document["delta"] = client.dataset(dataset)["delta"]  # said once, when the dataset was opened
        _show(client.add_budget(dataset, document), format_)


@app.command("set")
def set_(
    dataset: Dataset,
    name: Annotated[str, typer.Argument(metavar="BUDGET", help="The budget's name.", show_default=False)],
    changes: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE…", help="What changes: epsilon=4, reserved=ads:0.5", show_default=False
        ),
    ],
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Change a budget: `odometer budget set adult life epsilon=4`. Recorded in the ledger.

    A new limit keeps the budget's weights; any other change covers what is charged from now on.
    """
    changed = parsing.budget_parts(changes)
    with connected(url, key) as client:
        found = {budget["name"]: budget for budget in client.dataset(dataset).budgets}
        if name not in found:
            end(
                f"dataset {dataset} has no budget {name!r}; it has: {', '.join(found) or 'none'}",
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
        out.print(f"Note: {budget['warning']}.")
