"""Tables for a terminal or a pipe that never cut an id or a number."""

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from privacy_odometer.cli.output import console, printable

_WIDE: Final = 1000
"""Columns that are enough for any table."""


def table_of(*titles: str, last: str) -> Table:
    """An empty table with these columns. Only the `last` one may be broken into lines."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in titles:
        table.add_column(title, no_wrap=True)
    table.add_column(last)
    return table


def fits(table: Table) -> bool:
    """Whether the table fits the terminal without cutting a cell."""
    return width_of(table) <= console().width


def width_of(table: Table) -> int:
    """Columns that the table needs if no cell is broken."""
    out = console()
    return Measurement.get(out, out.options.update(max_width=_WIDE), table).maximum


def print_whole(table: Table) -> None:
    """Print a table with all of every cell, however narrow the terminal is. Nothing if it has no rows."""
    if not table.row_count:
        return
    out = console()
    if fits(table):
        out.print(table)
        return
    if not out.is_terminal:  # a pipe, to grep or less: as wide as needed
        wide = Console(file=out.file, width=width_of(table), markup=False, highlight=False, emoji=False)
        wide.print(table)
        return
    titles = [str(column.header) for column in table.columns]
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        for title, cell in zip(titles, cells, strict=True):
            if str(cell):
                out.print(f"{title:<14} {cell}", soft_wrap=True)
        out.print()


def shown_name(item: Mapping[str, Any]) -> str:
    """The name of a principal or of a key's principal; empty without one."""
    return printable(str(item["name"])) if item.get("name") else ""
