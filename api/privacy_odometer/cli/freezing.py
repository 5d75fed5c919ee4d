"""`odometer unfreeze`: a person's decision to go on after entries of a ledger were lost."""

from typing import Annotated

import typer

from odometer_client.connection import DEFAULT_URL
from privacy_odometer.cli import errors
from privacy_odometer.cli.options import Dataset
from privacy_odometer.cli.output import Format, Key, Output, Url, connected, end, out, print_json, stored
from privacy_odometer.cli.serve import read_settings
from privacy_odometer.cli.tables import budget_blocks, dataset_line


def unfreeze(
    dataset: Dataset,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why this is right, in one line: it becomes an entry.")
    ],
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The store, while no service runs on it: of what is gone altogether (a dataset, `~keys`, or "
            "all: `~ledger`).",
        ),
    ] = None,
    witness: Annotated[
        str | None, typer.Option(metavar="PATH", help="With --store: the witness; ODOMETER_WITNESS.")
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Go on with a dataset whose ledger went back in time, without what was lost.

    What the lost entries spent is spent, and no longer counted: look at `odometer ledger` first, and
    restore the store instead if there is a copy that has them.
    """
    if store is not None:
        _without_a_ledger(dataset, reason, store, witness)
        return
    with connected(url, key) as client:
        going_on = client.unfreeze(dataset, reason)
    if format_ is Format.json:
        print_json(going_on)
        return
    out.print(dataset_line(going_on))
    budget_blocks(going_on.budgets)


def _without_a_ledger(stream: str, reason: str, url: str, path: str | None) -> None:
    """What has no ledger any more to write the decision into: the witness keeps it."""
    from odometer_accountant.writer.witness import EVERYTHING
    from odometer_accountant.writer.writer import utc_now
    from privacy_odometer.witness_setup import default_witness, is_missing, open_witness

    settings = read_settings(**({"store": url} | ({"witness": path} if path else {})))
    found = open_witness(settings.witness or default_witness(), url)
    if found is None:
        end("there is no witness: nothing is refused for its sake", errors.REFUSED)
    if not is_missing(url) and _is_there(stream, url):
        end(
            f"{stream} is not gone: start the service, which freezes what is behind; unfreeze it there",
            errors.REFUSED,
        )
    known = found.read()
    if not known or (stream != EVERYTHING and stream not in known):
        end(f"the witness {found.path} knows nothing of {stream} in this store", errors.REFUSED)
    found.accept(stream, reason, utc_now())
    out.print(f"{stream}: the service goes on without what was lost", soft_wrap=True)


def _is_there(stream: str, url: str) -> bool:
    """Whether a dataset has a ledger in the store, or the store, where all of it is meant, has anything."""
    from odometer_accountant.stores import EMPTY_HEAD
    from odometer_accountant.writer.witness import EVERYTHING, KEYS

    with stored(url) as opened:
        if stream == EVERYTHING:
            return bool(opened.streams("", 1))
        return stream != KEYS and opened.load(stream, [])[0] != EMPTY_HEAD
