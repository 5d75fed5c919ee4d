"""`odometer derived`, `lineage`: what was made of a release, and what an entry comes of."""

from typing import Annotated, Any

import typer

from odometer_client.connection import DEFAULT_URL
from odometer_client.wording import mechanism_words, moment
from privacy_odometer.cli.charges import certain
from privacy_odometer.cli.options import Again, Dataset, Principal
from privacy_odometer.cli.output import Format, Key, Output, Url, connected, out, print_json


def derived(
    dataset: Dataset,
    parent: Annotated[
        int,
        typer.Argument(
            min=1, metavar="ENTRY", help="Number of the entry that it was made of.", show_default=False
        ),
    ],
    description: Annotated[
        str,
        typer.Argument(metavar="DESCRIPTION", help="What it is, 1 to 200 characters.", show_default=False),
    ],
    principal: Principal = None,
    idempotency_key: Again = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Record what was made of a release: it costs nothing, also on a closed dataset.

    odometer derived adult 12 "the histogram of the annual report, rounded to hundreds"
    """
    from odometer_client.keys import new_key

    once = idempotency_key or new_key()
    with certain(once), connected(url, key) as client:
        receipt = client.derive(dataset, parent, description, principal=principal, key=once)
    if format_ is Format.json:
        print_json(receipt)
        return
    again = " (before, under the same key)" if receipt.replayed else ""
    out.print(f"recorded {dataset}, entry {receipt.sequence}, made of entry {receipt.parent}{again}")
    if "by" in receipt:
        out.print(f"for      {receipt['principal']}, asked by {receipt['by']}", soft_wrap=True)
    out.print(f"hash     {receipt['hash']}", soft_wrap=True)


def lineage(
    dataset: Dataset,
    entry: Annotated[
        int,
        typer.Argument(min=1, metavar="ENTRY", help="Number of the entry.", show_default=False),
    ],
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Show what an entry comes of, and what was made of it."""
    with connected(url, key) as client:
        found = client.lineage(dataset, entry)
    if format_ is Format.json:
        print_json(found)
        return
    for item in reversed(found["ancestors"]):
        _line("  ", item)
    _line("> ", found["entry"])
    for item in found["descendants"]:
        _line("  ", item)


def _line(mark: str, item: dict[str, Any]) -> None:
    out.print(f"{mark}{item['sequence']:>6}  {moment(item['time'])}  {_said(item)}, by {item['principal']}")


def _said(item: dict[str, Any]) -> str:
    """What it is: made of another, or what it was charged."""
    if item["parent"] is not None:
        return f"made of entry {item['parent']}: {item['description']}"
    charges = (f"{one['count']} × {mechanism_words(one['mechanism'])}" for one in item["charges"])
    return f"{item['type']} {'; '.join(charges)}"
