"""`odometer derived`, `lineage`: record and show what was made from a release."""

from typing import Annotated, Any

import typer

from odometer_client.connection import DEFAULT_URL
from odometer_client.wording import mechanism_words, moment
from privacy_odometer.cli.connection import connected
from privacy_odometer.cli.options import Dataset, Format, IdempotencyKey, Key, Output, Principal, Url
from privacy_odometer.cli.output import console, print_json
from privacy_odometer.cli.receipts import unknown_outcome_explained


def derived(
    dataset: Dataset,
    parent: Annotated[
        int,
        typer.Argument(
            min=1, metavar="ENTRY", help="The number of the entry that it was made from.", show_default=False
        ),
    ],
    description: Annotated[
        str,
        typer.Argument(
            metavar="DESCRIPTION", help="A description of 1 to 200 characters.", show_default=False
        ),
    ],
    principal: Principal = None,
    idempotency_key: IdempotencyKey = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Record something that was made from a release. It costs nothing, and also works on a closed dataset.

    odometer derived adult 12 "the histogram of the annual report, rounded to hundreds"
    """
    from odometer_client.keys import new_key

    once = idempotency_key or new_key()
    with unknown_outcome_explained(once), connected(url, key) as client:
        receipt = client.derive(dataset, parent, description, principal=principal, key=once)
    if format_ is Format.json:
        print_json(receipt)
        return
    again = " (recorded before, under the same key)" if receipt.replayed else ""
    console().print(f"recorded {dataset}, entry {receipt.sequence}, made from entry {receipt.parent}{again}")
    if "by" in receipt:
        console().print(f"for      {receipt['principal']}, requested by {receipt['by']}", soft_wrap=True)
    console().print(f"hash     {receipt['hash']}", soft_wrap=True)


def lineage(
    dataset: Dataset,
    entry: Annotated[
        int,
        typer.Argument(min=1, metavar="ENTRY", help="The number of the entry.", show_default=False),
    ],
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Show what an entry was made from, and what was made from it.

    The entries that it comes from are listed above it, and those that were made from it below.
    """
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
    console().print(
        f"{mark}{item['sequence']:>6}  {moment(item['time'])}  {_description(item)}, by {item['principal']}"
    )


def _description(item: dict[str, Any]) -> str:
    """The description of something derived, or the charges of a release."""
    if item["parent"] is not None:
        return f"made from entry {item['parent']}: {item['description']}"
    charges = (f"{one['count']} × {mechanism_words(one['mechanism'])}" for one in item["charges"])
    return f"{item['type']} {'; '.join(charges)}"
