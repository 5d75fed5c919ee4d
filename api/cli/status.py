"""`odometer status`: what is spent and left, and what the readings mean."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from api.cli import words
from api.cli.common import DEFAULT_URL, Format, Key, Output, Url, connected, indented, out, print_json, up
from api.cli.tables import budget_blocks, dataset_line

_SHOWN: Final = ("if_stopped_now", "odometer")


def status(
    dataset: Annotated[
        str | None,
        typer.Argument(metavar="[DATASET]", help="One dataset; all unless given.", show_default=False),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(parser=words.number, metavar="NUMBER", help="Read at another δ, as what-if."),
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Show what each budget has spent and left, and the readings with what they mean."""
    with connected(url, key) as client:
        found = [client.dataset(dataset)] if dataset is not None else client.datasets()
        shown = [(one, None if "problem" in one else client.odometer(one.name, delta)) for one in found]
    if format_ is Format.json:
        print_json([{"dataset": dict(one), "odometer": reading and dict(reading)} for one, reading in shown])
        return
    notes: list[str] = []
    for number, (one, odometer) in enumerate(shown):
        if number:
            out.print()
        out.print(dataset_line(one))
        if odometer is None:
            continue
        # From the odometer's answer: budgets and readings of one moment.
        budget_blocks(odometer["budgets"])
        _readings([odometer.reading(name) for name in _SHOWN], notes)
        _guarantees(odometer["readings"])
    if not shown:
        out.print("There is no dataset yet: odometer dataset create")
    if notes:
        out.print()
    for number, note in enumerate(notes, 1):
        indented(f"[{number}] {note}", 0, "dim")


def _guarantees(readings: Sequence[Mapping[str, Any]]) -> None:
    """What may be promised to people: the budgets' limits."""
    for reading in readings:
        if reading["name"] == "guarantee":
            indented(f"guarantee of {reading['budget']}: {reading['holds']}")


def _readings(readings: Sequence[Mapping[str, Any]], notes: list[str]) -> None:
    """The running readings, each with the number of the footnote that says when it holds."""
    for reading in readings:
        said = [reading["holds"], *reading["warnings"]]
        notes += [note for note in said if note not in notes]
        marks = "".join(f"[{notes.index(note) + 1}]" for note in said)
        indented(f"{reading['name']}: ε {up(reading['value'])} at δ {reading['delta']:g} {marks}")
