"""`odometer dataset partition`: give a dataset further partitions."""

from typing import Annotated

import typer

from odometer_client.connection import DEFAULT_URL
from privacy_odometer.cli.options import Dataset
from privacy_odometer.cli.output import Format, Key, Output, Url, connected, out, print_json

app = typer.Typer(help="Give a dataset further partitions.", no_args_is_help=True)


@app.callback()
def partition() -> None:
    """Give a dataset further partitions."""


@app.command()
def add(
    dataset: Dataset,
    partitions: Annotated[
        list[str],
        typer.Argument(metavar="NAME…", help="Their names, for good.", show_default=False),
    ],
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Add partitions. Each unit is in one of them, for good; charges on all partitions count for them too."""
    with connected(url, key) as client:
        changed = client.add_partitions(dataset, partitions)
    if format_ is Format.json:
        print_json(changed)
        return
    out.print(f"{dataset} has the partitions {', '.join(changed['partitions'])}")
