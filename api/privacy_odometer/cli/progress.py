"""Progress bars on the standard error, for commands that read a whole ledger."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from rich.console import Console


@contextmanager
def progress_bar(
    task: str, total: int | None, unit: Literal["entries", "bytes"]
) -> Iterator[Callable[[int], None] | None]:
    """A progress bar if the standard error is a terminal; it takes the number of units that were done since.

    `total`: None if it is unknown. Yields None if there is no terminal.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    # Imported here, because it costs every other command 5 ms.
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    count = (MofNCompleteColumn(), TextColumn("entries")) if unit == "entries" else (DownloadColumn(),)
    columns = (TextColumn(task), BarColumn(), *count, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=total)
        yield lambda more: progress.advance(bar, more)
