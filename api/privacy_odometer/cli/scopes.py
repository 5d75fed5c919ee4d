"""`odometer scopes`: the principals, teams and groups that were charged, and their losses."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from odometer_client.connection import DEFAULT_URL
from odometer_client.wording import up
from privacy_odometer.cli.connection import connected
from privacy_odometer.cli.options import Dataset, Format, Key, Output, Url
from privacy_odometer.cli.output import console, print_indented, print_json


class Kind(StrEnum):
    """The kinds of scopes that can be listed."""

    PRINCIPAL = "principal"
    TEAM = "team"
    GROUP = "group"
    PARTITION = "partition"
    MECHANISM = "mechanism"


_PLURALS: Final = {Kind.MECHANISM: "kinds of mechanism"}


def scopes(
    dataset: Dataset,
    kind: Annotated[
        Kind | None,
        typer.Option(
            metavar="KIND",
            help="principal, team, group, partition or mechanism. Default: all of them.",
            show_default=False,
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """List the principals, teams, groups, partitions and kinds of mechanism that were charged.

    odometer scopes adult --kind group

    `odometer status adult --scope group/sweep` shows one of them in full. Units are not listed.
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
        plural = _PLURALS.get(kind, f"{kind.value}s") if kind else "scopes"
        console().print(f"No {plural} of {dataset} were charged yet.")


def _one(item: Mapping[str, Any]) -> None:
    console().print(f"{item['scope']}  ε {up(item['if_stopped_now'])} at δ {item['delta']:g} if stopped now")
    tightest = item.get("tightest")
    if tightest:
        left = f"{tightest['budget']} is the most used: {up(tightest['spent'])} of {tightest['limit']:g}"
        more = f", of {item['budgets']} budgets" if item["budgets"] > 1 else ""
        print_indented(f"{left}{more}", 4, "dim")
