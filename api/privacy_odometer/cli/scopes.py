"""`odometer scopes`: whom a dataset was charged for, each with what it has lost."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from odometer_client.connection import DEFAULT_URL
from odometer_client.wording import up
from privacy_odometer.cli.options import Dataset
from privacy_odometer.cli.output import Format, Key, Output, Url, connected, indented, out, print_json


class Kind(StrEnum):
    """What scopes are listed by."""

    PRINCIPAL = "principal"
    TEAM = "team"
    GROUP = "group"
    PARTITION = "partition"
    MECHANISM = "mechanism"


_MANY: Final = {Kind.MECHANISM: "kinds of mechanism"}


def scopes(
    dataset: Dataset,
    kind: Annotated[
        Kind | None,
        typer.Option(
            metavar="KIND",
            help="principal, team, group, partition or mechanism; all of them unless given.",
            show_default=False,
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """List the principals, teams, groups, partitions and kinds of mechanism that were charged.

    odometer scopes adult --kind group

    One of them in full: `odometer status adult --scope group/sweep`. Units are not listed.
    """
    with connected(url, key) as client:
        found = {one: list(client.scopes(dataset, one.value)) for one in ([kind] if kind else Kind)}
    if format_ is Format.json:
        print_json([item for items in found.values() for item in items])
        return
    for items in found.values():
        for item in items:
            _one(item)
    if not any(found.values()):
        what = _MANY.get(kind, f"{kind.value}s") if kind else "scopes"
        out.print(f"No {what} of {dataset} were charged yet.")


def _one(item: Mapping[str, Any]) -> None:
    out.print(f"{item['scope']}  ε {up(item['if_stopped_now'])} at δ {item['delta']:g} if stopped now")
    tightest = item.get("tightest")
    if tightest:
        left = f"{tightest['budget']} is used most: {up(tightest['spent'])} of {tightest['limit']:g}"
        more = f", of {item['budgets']} budgets" if item["budgets"] > 1 else ""
        indented(f"{left}{more}", 4, "dim")
