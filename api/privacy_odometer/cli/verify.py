"""`odometer verify`: count a ledger again, straight from its store."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from privacy_odometer.cli import errors
from privacy_odometer.cli.output import (
    Format,
    Output,
    is_store,
    out,
    plain,
    plural,
    print_json,
    shown_store,
    stored,
)
from privacy_odometer.cli.serve import read_settings

if TYPE_CHECKING:
    from odometer_accountant.stores import Store
    from odometer_accountant.verify.walk import Verdict


def verify(
    streams: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATASET]…", help="Only these; all, and the API keys, unless given.", show_default=False
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The ledger. Unless given: ODOMETER_STORE, or ODOMETER_URL where that names a store.",
            show_default=False,
        ),
    ] = None,
    format_: Output = Format.text,
) -> None:
    """Count a ledger again, and say where what is stored parts from it.

    Every chain, loss and total is recomputed from the entries. Reads only, also while a service is running.
    Exit status 0: nothing parts; 1: something does. A ledger that was cut back as a whole looks sound:
    compare the hashes printed here with a receipt that you kept.
    """
    url = store or _from_environment()
    where = shown_store(url)
    with stored(url, reads=True) as opened:
        if format_ is Format.text:
            out.print(f"ledger  {plain(where)}", soft_wrap=True)
        verdicts = []
        for verdict in _verdicts(opened, streams or None):
            verdicts.append(verdict)
            if format_ is Format.text:
                _say(verdict)
    if format_ is Format.json:
        print_json([{"store": where, **verdict.document()} for verdict in verdicts])
    elif not verdicts:
        out.print("There is nothing in this ledger.")
    raise typer.Exit(0 if all(verdict.ok for verdict in verdicts) else errors.REFUSED)


def _from_environment() -> str:
    """The store to read. Says on stderr when ODOMETER_URL is something else, whose ledger may differ."""
    asked = os.environ.get("ODOMETER_URL", "")
    if asked and "ODOMETER_STORE" not in os.environ and is_store(asked):
        return asked
    url = read_settings().store
    if asked and asked != url:
        typer.echo(
            "odometer: ODOMETER_URL is not asked here: this reads the ledger itself, "
            f"{plain(shown_store(url))}. For another one: --store URL",
            err=True,
        )
    return url


def _verdicts(store: "Store", names: list[str] | None) -> Iterator["Verdict"]:
    from odometer_accountant.verify.walk import all_streams, verify

    total = sum(store.examine(name, []).head.sequence for name in names or all_streams(store))
    columns = (
        TextColumn("verifying"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("entries"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total)
        yield from verify(store, names, lambda more: progress.advance(task, more))


def _say(verdict: "Verdict") -> None:
    if verdict.ok:
        entries = plural(verdict.head.sequence, "entry", "entries")
        out.print(f"ok      {verdict.stream}: {entries}, {verdict.head.hash}", soft_wrap=True)
        return
    findings = plural(len(verdict.findings) + verdict.more, "finding", "findings")
    out.print(f"FAULTY  {plain(verdict.stream)}: {findings}", style="red")
    for finding in verdict.findings:
        out.print(f"  {plain(str(finding))}", soft_wrap=True)
    if verdict.more:
        out.print(f"  and {verdict.more} more")
