"""`odometer status`: what is spent and left, and what the readings mean."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from odometer_client import wording
from odometer_client.connection import DEFAULT_URL
from odometer_client.wording import scope_words, up
from privacy_odometer.cli import errors, parsing
from privacy_odometer.cli.charges import loss_line
from privacy_odometer.cli.output import Format, Key, Output, Url, connected, end, indented, out, print_json
from privacy_odometer.cli.tables import budget_blocks, dataset_line

if TYPE_CHECKING:
    from odometer_client import Odometer

_CALLED: Final = re.compile(r": (.+) (?:is|are) called that$")
"""What the service notes of a principal that was asked for by what it is called."""
_SHOWN: Final = ("if_stopped_now", "odometer")
_PROMISE: Final = re.compile(r"(\([α-ω, ]+\)|[α-ω])-(?=\w*DP\b)")
"""The letters of a guarantee: (ε, δ)-DP, ε-DP, ρ-zCDP, (α, ε)-RDP, μ-GDP."""


def status(
    dataset: Annotated[
        str | None,
        typer.Argument(metavar="[DATASET]", help="One dataset; all unless given.", show_default=False),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(parser=parsing.number, metavar="NUMBER", help="Read at another δ, as what-if."),
    ] = None,
    scope: Annotated[
        str | None,
        typer.Option(
            metavar="SCOPE",
            help="Whose odometer: partition/eu, unit/u1, principal/p_1, team/ads, group/sweep.",
            show_default=False,
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Show what each budget has spent and left, and the readings with what they mean."""
    if scope is not None and dataset is None:
        raise typer.BadParameter("say which dataset the scope is of")
    with connected(url, key) as client:
        found = [client.dataset(dataset)] if dataset is not None else client.datasets()
        shown = [
            (one, client.odometer(one.name, delta, scope=scope) if _has_odometer(one, scope) else None)
            for one in found
        ]
    for one, odometer in shown:
        if odometer is not None:
            _not_a_name(one.name, scope or "", odometer)
    if format_ is Format.json:
        print_json([{"dataset": dict(one), "odometer": reading and dict(reading)} for one, reading in shown])
        return
    notes: list[str] = []
    for number, (one, odometer) in enumerate(shown):
        if number:
            out.print()
        out.print(dataset_line(one))
        if odometer is not None:
            _one(odometer, notes)
        elif "problem" not in one:
            budget_blocks(one.budgets)
            indented(f"Each unit has an odometer of its own: odometer status {one.name} --scope unit/…")
    if not shown:
        out.print("There is no dataset yet: odometer dataset create")
    if notes:
        out.print()
    for number, note in enumerate(notes, 1):
        indented(f"[{number}] {note}", 0, "dim")


def _not_a_name(dataset: str, scope: str, odometer: "Odometer") -> None:
    """End the command where a principal was asked for by name: the zero of nobody would pass for theirs."""
    if odometer.get("known", True) or not scope.startswith("principal/"):
        return
    for note in odometer.notes:
        found = _CALLED.search(note)
        if found:
            name, ids = scope.partition("/")[2], found[1].split(" and ")
            asks = " or ".join(f"odometer status {dataset} --scope principal/{one}" for one in ids)
            end(f"nobody is {scope} in this ledger; {name!r} is {found[1]}: {asks}", errors.REFUSED)


def _has_odometer(dataset: Mapping[str, Any], scope: str | None) -> bool:
    """Whether there is one to ask for: not of a dataset that cannot be read, nor of all units together."""
    return "problem" not in dataset and (scope is not None or dataset.get("composition") != "by_unit")


def _one(odometer: "Odometer", notes: list[str]) -> None:
    """The budgets and readings of one moment."""
    whose = scope_words(odometer.get("scope", "dataset"))
    if whose:
        out.print(f"  the odometer of {whose}:")
        for note in odometer.notes:
            indented(f"{note}", style="bold yellow")
        budget_blocks(odometer.get("left") or [])
    else:
        budget_blocks(odometer["budgets"])
    _readings([odometer.reading(name) for name in _SHOWN], notes)
    held = odometer.get("held") or {}
    if any(value is None or value > 0 for value in held.values()):
        indented(f"held: {loss_line(held)}; part of what is spent, until it is settled for what was used")
    if not whose:
        _guarantees(odometer["readings"])


def _guarantees(readings: Sequence[Mapping[str, Any]]) -> None:
    """What may be promised to people: the budgets' limits."""
    for reading in readings:
        if reading["name"] == "guarantee":
            indented(f"guarantee of {reading['budget']}: {_in_numbers(reading)}")


def _in_numbers(reading: Mapping[str, Any]) -> str:
    """What a guarantee says, `(1, 1e-06)-DP` in place of `(ε, δ)-DP`; its letters where it has no number."""
    said = str(reading["holds"])
    if reading["value"] is None:
        return said
    numbers = dict.fromkeys(map(ord, "ερμ"), up(reading["value"]))
    numbers |= {ord("δ"): up(reading.get("delta")), ord("α"): wording.number(reading.get("order"))}
    return _PROMISE.sub(lambda found: found[0].translate(numbers), said, count=1)


def _readings(readings: Sequence[Mapping[str, Any]], notes: list[str]) -> None:
    """The running readings, each with the number of the footnote that says when it holds."""
    for reading in readings:
        said = [reading["holds"], *reading["warnings"]]
        notes += [note for note in said if note not in notes]
        marks = "".join(f"[{notes.index(note) + 1}]" for note in said)
        indented(f"{reading['name']}: ε {up(reading['value'])} at δ {reading['delta']:g} {marks}")
