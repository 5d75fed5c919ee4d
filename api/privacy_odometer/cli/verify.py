"""`odometer verify`: recount a ledger directly from its store."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from privacy_odometer.cli import errors
from privacy_odometer.cli.connection import is_store, shown_store, stored
from privacy_odometer.cli.options import Format, Output
from privacy_odometer.cli.output import console, plural, print_json, printable
from privacy_odometer.cli.progress import progress_bar
from privacy_odometer.cli.serve import read_settings

if TYPE_CHECKING:
    from odometer_accountant.stores import Store
    from odometer_accountant.verify.walk import Verdict


def verify(
    streams: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATASET]…",
            help="Verify only these datasets. Default: all datasets and the API keys.",
            show_default=False,
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The ledger. Default: ODOMETER_STORE, or ODOMETER_URL if it names a store.",
            show_default=False,
        ),
    ] = None,
    format_: Output = Format.text,
) -> None:
    """Recount a ledger from its entries, and report where the stored values differ.

    Every hash chain, loss and total is recomputed. The command only reads, and also works while a service is
    running. Exit status 0: no differences; 1: differences. It cannot detect that the newest entries of the
    whole ledger were removed: compare the hashes that it prints with a receipt that you kept.
    """
    url = store or _from_environment()
    where = shown_store(url)
    with stored(url, reads=True) as opened:
        if format_ is Format.text:
            console().print(f"ledger  {printable(where)}", soft_wrap=True)
        verdicts = []
        for verdict in _verdicts(opened, streams or None):
            verdicts.append(verdict)
            if format_ is Format.text:
                _print(verdict)
    if format_ is Format.json:
        print_json([{"store": where, **verdict.document()} for verdict in verdicts])
    elif not verdicts:
        console().print("This ledger is empty.")
    raise typer.Exit(0 if all(verdict.ok for verdict in verdicts) else errors.REFUSED)


def _from_environment() -> str:
    """The store to read. Warns if ODOMETER_URL names something else, which may have another ledger."""
    configured = os.environ.get("ODOMETER_URL", "")
    if configured and "ODOMETER_STORE" not in os.environ and is_store(configured):
        return configured
    url = read_settings().store
    if configured and configured != url:
        typer.echo(
            "odometer: verify reads the ledger directly and does not use ODOMETER_URL. It reads "
            f"{printable(shown_store(url))}. For another ledger: --store URL",
            err=True,
        )
    return url


def _verdicts(store: "Store", names: list[str] | None) -> Iterator["Verdict"]:
    from odometer_accountant.verify.walk import all_streams, verify

    total = sum(store.examine(name, []).head.sequence for name in names or all_streams(store))
    with progress_bar("verifying", total, "entries") as progress:
        yield from verify(store, names, progress)


def _print(verdict: "Verdict") -> None:
    if verdict.ok:
        entries = plural(verdict.head.sequence, "entry", "entries")
        console().print(f"ok      {verdict.stream}: {entries}, {verdict.head.hash}", soft_wrap=True)
        return
    findings = plural(len(verdict.findings) + verdict.more, "finding", "findings")
    console().print(f"FAULTY  {printable(verdict.stream)}: {findings}", style="red")
    for finding in verdict.findings:
        console().print(f"  {printable(str(finding))}", soft_wrap=True)
    if verdict.more:
        console().print(f"  and {verdict.more} more")
