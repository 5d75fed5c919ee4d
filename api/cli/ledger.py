"""`odometer ledger`: the entries of a dataset."""

import csv
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import typer

from api.cli import words
from api.cli.common import DEFAULT_URL, Key, Url, connected, out

_COLUMNS = ("sequence", "time", "type", "principal", "key", "what", "hash")


def ledger(
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="The dataset's name.", show_default=False)
    ],
    after: Annotated[int, typer.Option(min=0, metavar="N", help="Entries after this number.")] = 0,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="So many of them.")] = 50,
    last: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The last N entries instead.", show_default=False)
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All of them, however many.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Whole entries, one JSON document a line.")] = False,
    csv_: Annotated[bool, typer.Option("--csv", help="One row an entry, for spreadsheets.")] = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Show the entries, oldest first, page by page."""
    if json_ and csv_:
        raise typer.BadParameter("give either --json or --csv")
    with connected(url, key) as client:
        if last is not None:
            after, limit = max(0, client.dataset(dataset)["sequence"] - last), last
        # One more than asked for tells whether there are others.
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
        out.print(f"More: --after {counted.sequence}")


class _Counted:
    """Entries, remembering the last one's number."""

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
        out.print(f"{item['sequence']:>6}  {entry['time'][:19].replace('T', ' ')}Z  {_what(entry)}")
        out.print(f"        by {entry.get('principal', '')}, {item['hash'][:16]}", style="dim")


def _write_csv(items: Iterable[Mapping[str, Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for item in items:
        entry = item["entry"]
        values = {**entry, "sequence": item["sequence"], "hash": item["hash"], "what": _what(entry)}
        writer.writerow([_cell(values.get(column, "")) for column in _COLUMNS])


def _cell(value: Any) -> Any:
    """A caller chose the idempotency key: no spreadsheet may run it as a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def _what(entry: Mapping[str, Any]) -> str:
    """An entry in one line."""
    kind = entry["type"]
    if kind == "charged":
        charges = entry["command"]["charges"]
        return "charged " + "; ".join(
            f"{item['count']} × {words.said(item['mechanism'])}" for item in charges
        )
    if kind == "opened":
        budgets = ", ".join(_budget(budget["budget"]) for budget in entry.get("budgets", {}).values())
        return f"opened, budgets: {budgets or 'none, no limit'}"
    if kind == "budget_set":
        return f"budget set: {_budget(entry['entry']['budget'])}"
    return str(kind)


def _budget(document: Mapping[str, Any]) -> str:
    """A budget as `--budget` takes it; what it names as its workload is in the whole entry."""
    limits = [
        f"{name}={value}" for name, value in document.items() if name not in ("name", "kind", "workload")
    ]
    return f"{document.get('name')}:{document.get('kind')}:{','.join(limits)}"
