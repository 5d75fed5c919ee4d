"""`odometer status`: the amounts spent and left, and the readings with their meaning."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from odometer_client import wording
from odometer_client.connection import DEFAULT_URL
from odometer_client.wording import scope_words, up
from privacy_odometer.cli import errors, parsing
from privacy_odometer.cli.budget_tables import budget_blocks, dataset_line
from privacy_odometer.cli.connection import connected
from privacy_odometer.cli.errors import end
from privacy_odometer.cli.options import Format, Key, Output, Url
from privacy_odometer.cli.output import console, print_indented, print_json
from privacy_odometer.cli.receipts import loss_line

if TYPE_CHECKING:
    from odometer_client import Odometer

_NAMED: Final = re.compile(r": (.+) (?:is|are) called that$")
"""The service's note on a principal that was requested by its name instead of its id."""
_SHOWN: Final = ("if_stopped_now", "odometer")
_PROMISE: Final = re.compile(r"(\([α-ω, ]+\)|[α-ω])-(?=\w*DP\b)")
"""The parameters of a guarantee: (ε, δ)-DP, ε-DP, ρ-zCDP, (α, ε)-RDP, μ-GDP."""


def status(
    dataset: Annotated[
        str | None,
        typer.Argument(metavar="[DATASET]", help="One dataset. Default: all of them.", show_default=False),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(parser=parsing.number, metavar="NUMBER", help="Show the readings at another δ."),
    ] = None,
    scope: Annotated[
        str | None,
        typer.Option(
            metavar="SCOPE",
            help="Show one part of the dataset: partition/eu, unit/u1, principal/p_1, team/ads, group/sweep.",
            show_default=False,
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Show what each budget has spent and left, and the readings with their meaning."""
    if scope is not None and dataset is None:
        raise typer.BadParameter("name the dataset of the scope: odometer status DATASET --scope …")
    with connected(url, key) as client:
        found = [client.dataset(dataset)] if dataset is not None else client.datasets()
        shown = [
            (one, client.odometer(one.name, delta, scope=scope) if _has_odometer(one, scope) else None)
            for one in found
        ]
    for one, odometer in shown:
        if odometer is not None:
            _refuse_name(one.name, scope or "", odometer)
    if format_ is Format.json:
        print_json([{"dataset": dict(one), "odometer": reading and dict(reading)} for one, reading in shown])
        return
    notes: list[str] = []
    for number, (one, odometer) in enumerate(shown):
        if number:
            console().print()
        console().print(dataset_line(one))
        if odometer is not None:
            _one(odometer, notes)
        elif "problem" not in one:
            budget_blocks(one.budgets)
            print_indented(f"Each unit has its own odometer: odometer status {one.name} --scope unit/…")
    if not shown:
        console().print("There are no datasets yet. Open one: odometer dataset create")
    if notes:
        console().print()
    for number, note in enumerate(notes, 1):
        print_indented(f"[{number}] {note}", 0, "dim")


def _refuse_name(dataset: str, scope: str, odometer: "Odometer") -> None:
    """End the command if the scope has a principal's name instead of its id: it would read zero."""
    if odometer.get("known", True) or not scope.startswith("principal/"):
        return
    for note in odometer.notes:
        found = _NAMED.search(note)
        if found:
            name, ids = scope.partition("/")[2], found[1].split(" and ")
            commands = " or ".join(f"odometer status {dataset} --scope principal/{one}" for one in ids)
            end(
                f"there is no {scope} in this ledger; {name!r} is the name of {found[1]}: {commands}",
                errors.REFUSED,
            )


def _has_odometer(dataset: Mapping[str, Any], scope: str | None) -> bool:
    """Whether it can be read: not for an unreadable dataset, nor for all units together."""
    return "problem" not in dataset and (scope is not None or dataset.get("composition") != "by_unit")


def _one(odometer: "Odometer", notes: list[str]) -> None:
    """Print the budgets and the readings of one odometer."""
    whose = scope_words(odometer.get("scope", "dataset"))
    if whose:
        console().print(f"  the odometer of {whose}:")
        for note in odometer.notes:
            print_indented(f"{note}", style="bold yellow")
        budget_blocks(odometer.get("left") or [])
    else:
        budget_blocks(odometer["budgets"])
    _readings([odometer.reading(name) for name in _SHOWN], notes)
    held = odometer.get("held") or {}
    if any(value is None or value > 0 for value in held.values()):
        print_indented(f"held: {loss_line(held)}; it counts as spent until it is settled")
    if not whose:
        _guarantees(odometer["readings"])


def _guarantees(readings: Sequence[Mapping[str, Any]]) -> None:
    """Print the guarantee of each budget."""
    for reading in readings:
        if reading["name"] == "guarantee":
            print_indented(f"guarantee of {reading['budget']}: {_in_numbers(reading)}")


def _in_numbers(reading: Mapping[str, Any]) -> str:
    """A guarantee with numbers, `(1, 1e-06)-DP` for `(ε, δ)-DP`; with letters if it has no number."""
    guarantee = str(reading["holds"])
    if reading["value"] is None:
        return guarantee
    numbers = dict.fromkeys(map(ord, "ερμ"), up(reading["value"]))
    numbers |= {ord("δ"): up(reading.get("delta")), ord("α"): wording.number(reading.get("order"))}
    return _PROMISE.sub(lambda found: found[0].translate(numbers), guarantee, count=1)


def _readings(readings: Sequence[Mapping[str, Any]], notes: list[str]) -> None:
    """Print the readings, each with the number of the footnote that says when it holds."""
    for reading in readings:
        own = [reading["holds"], *reading["warnings"]]
        notes += [note for note in own if note not in notes]
        marks = "".join(f"[{notes.index(note) + 1}]" for note in own)
        print_indented(f"{reading['name']}: ε {up(reading['value'])} at δ {reading['delta']:g} {marks}")
