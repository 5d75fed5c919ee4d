"""`odometer unfreeze`: a person's decision to go on after entries of a ledger were lost."""

from typing import Annotated

import typer

from api.cli.asked import Dataset
from api.cli.common import Format, Key, Output, Url, connected, out, print_json
from api.cli.tables import budget_blocks, dataset_line
from odometer_client.connection import DEFAULT_URL


def unfreeze(
    dataset: Dataset,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why this is right, in one line: it becomes an entry.")
    ],
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Go on with a dataset whose ledger went back in time, without what was lost.

    What the lost entries spent is spent, and no longer counted: look at `odometer ledger` first, and
    restore the store instead if there is a copy that has them.
    """
    with connected(url, key) as client:
        going_on = client.unfreeze(dataset, reason)
    if format_ is Format.json:
        print_json(going_on)
        return
    out.print(dataset_line(going_on))
    budget_blocks(going_on.budgets)
