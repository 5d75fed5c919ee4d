"""`odometer ledger`: the entries of a dataset, as text, JSON or CSV."""

import csv
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from odometer_client.connection import DEFAULT_URL
from odometer_client.wording import mechanism_words, moment
from privacy_odometer.cli import parsing
from privacy_odometer.cli.connection import connected
from privacy_odometer.cli.options import Dataset, Key, Url
from privacy_odometer.cli.output import console

if TYPE_CHECKING:
    from odometer_client import Client

_COLUMNS = ("sequence", "time", "type", "principal", "key", "what", "hash")


class LedgerFormat(StrEnum):
    """How entries are printed."""

    text = "text"
    json = "json"
    csv = "csv"


def ledger(
    dataset: Dataset,
    after: Annotated[int, typer.Option(min=0, metavar="N", help="Show the entries after this number.")] = 0,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="The number of entries.")] = 50,
    last: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Show the last N entries instead.", show_default=False),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Show all entries, however many.")] = False,
    format_: Annotated[
        LedgerFormat,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="text; json: one whole entry per line; csv: one row per entry, for spreadsheets.",
        ),
    ] = LedgerFormat.text,
    json_: Annotated[bool, typer.Option("--json", hidden=True)] = False,
    csv_: Annotated[bool, typer.Option("--csv", hidden=True)] = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Show the entries, the oldest first, page by page."""
    if json_ and csv_:
        raise typer.BadParameter("give either --json or --csv")
    json_, csv_ = json_ or format_ is LedgerFormat.json, csv_ or format_ is LedgerFormat.csv
    with connected(url, key) as client:
        if last is not None:
            after, limit = _before(client, dataset, last), last
        # One entry more than requested shows whether there are others.
        found: Iterable[Mapping[str, Any]] = client.ledger(
            dataset, after, limit=1000 if all_ else min(limit + 1, 1000)
        )
        counted = _Counted(found if all_ else itertools.islice(found, limit))
        if json_:
            for item in counted:
                print(json.dumps(dict(item), ensure_ascii=False))
        elif csv_:
            _write_csv(counted)
        else:
            _print(counted)
        following = None if all_ else next(iter(found), None)
    if following is not None and not (json_ or csv_):
        console().print(f"More: --after {counted.sequence}")


def _before(client: "Client", dataset: str, last: int) -> int:
    """The number of the entry before the last `last` of them."""
    from odometer_client.errors import LedgerRolledBack

    try:
        end = int(client.dataset(dataset)["sequence"])
    except LedgerRolledBack:  # a frozen dataset can be read only through its ledger
        end = max((int(item["sequence"]) for item in client.ledger(dataset)), default=0)
    return max(0, end - last)


class _Counted:
    """Iterates over entries and keeps the number of the last one."""

    def __init__(self, items: Iterable[Mapping[str, Any]]) -> None:
        self._items = items
        self.sequence = 0

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for item in self._items:
            self.sequence = item["sequence"]
            yield item


def _print(items: Iterable[Mapping[str, Any]]) -> None:
    for item in items:
        entry = item["entry"]
        console().print(f"{item['sequence']:>6}  {moment(entry['time'])}  {summary(entry)}")
        console().print(f"        by {entry.get('principal', '')}, {item['hash'][:16]}", style="dim")


def _write_csv(items: Iterable[Mapping[str, Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for item in items:
        entry = item["entry"]
        values = {**entry, "sequence": item["sequence"], "hash": item["hash"], "what": summary(entry)}
        writer.writerow([_cell(values.get(column, "")) for column in _COLUMNS])


def _cell(value: Any) -> Any:
    """A cell that no spreadsheet runs as a formula: callers choose their idempotency keys."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def summary(entry: Mapping[str, Any]) -> str:
    """An entry as one line of text."""
    line = _LINES.get(entry["type"])
    return str(entry["type"]) if line is None else line(entry)


def _opened(entry: Mapping[str, Any]) -> str:
    budgets = ", ".join(parsing.budget_text(budget["budget"]) for budget in entry.get("budgets", {}).values())
    partitions = f", partitions: {', '.join(entry['partitions'])}" if entry.get("partitions") else ""
    return f"opened, budgets: {budgets or 'none, no limit'}{partitions}"


def _settled(entry: Mapping[str, Any]) -> str:
    held = entry["held"]["command"]["charges"]
    used = "; ".join(
        f"{number} of {item['count']} × {mechanism_words(item['mechanism'])}"
        for number, item in zip(entry["used"], held, strict=True)
    )
    return f"settled hold {entry['hold']}: {used}"


def _charges(entry: Mapping[str, Any]) -> str:
    command = entry["command"]
    text = "; ".join(f"{item['count']} × {mechanism_words(item['mechanism'])}" for item in command["charges"])
    if (partitions := command.get("partitions")) is not None:
        text += f", on {'all partitions' if partitions == 'all' else ', '.join(partitions)}"
    if (group := command.get("group")) is not None:
        text += f", {group['runs']} runs of {group['name']}"
    return text + _requester(entry)


def _requester(entry: Mapping[str, Any]) -> str:
    """The sender of the request, if another principal was charged."""
    return f", requested by {entry['by']}" if entry.get("by") else ""


def _derived(entry: Mapping[str, Any]) -> str:
    command = entry["command"]
    return f"made from entry {command['parent']}: {command['description']}{_requester(entry)}"


def _step(entry: Mapping[str, Any]) -> str:
    """The step of a session that a charge paid for."""
    step = entry["command"].get("session")
    if step is None:
        return ""
    if "open" in step:
        return f"session opened ({mechanism_words(step['open'])}): "
    end = ", its last" if step["last"] else ""
    return f"session {step['id']}, {_answer(step, entry['command']['charges'])}{end}: "


def _answer(step: Mapping[str, Any], charges: Iterable[Mapping[str, Any]]) -> str:
    """The answer that was charged: in a run of a sparse vector, or to a query on votes."""
    if all(item["mechanism"]["kind"] == "above_threshold" for item in charges):
        return f"above in run {step['run']}"
    return f"query {step['run']} {'answered' if step['above'] else 'without consensus, not answered'}"


_LINES: Final[dict[str, Callable[[Mapping[str, Any]], str]]] = {
    "opened": _opened,
    "charged": lambda entry: f"{_step(entry)}charged {_charges(entry)}",
    "held": lambda entry: f"held {_charges(entry)}, until {moment(entry['expires'])}",
    "settled": _settled,
    "budget_set": lambda entry: f"budget set: {parsing.budget_text(entry['entry']['budget'])}",
    "partitions_added": lambda entry: f"partitions added: {', '.join(entry['partitions'])}",
    "session_closed": lambda entry: (
        f"session {entry['session']} closed, {entry['above']} above its threshold"
    ),
    "carried": lambda entry: (
        f"carried into the new windows: {len(entry['holds'])} holds, {len(entry['sessions'])} sessions"
    ),
    "derived": _derived,
    "closed": lambda _: "closed: no more charges",
    "frozen": lambda entry: f"frozen: entry {entry['seen'][0]} is missing or was changed",
    "unfrozen": lambda entry: f"unfrozen without the lost entries: {entry['reason']}",
}
"""The line for an entry of each type. Other entries are shown as their type."""
