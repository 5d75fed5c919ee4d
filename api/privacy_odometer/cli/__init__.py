"""The command `odometer`.

Most commands use `odometer_client`, with a service or with a ledger on this machine.
"""

import io
import sys
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from privacy_odometer.cli import (
    budgets,
    charges,
    datasets,
    derived,
    events,
    holds,
    keys,
    ledger,
    mechanisms,
    output,
    principals,
    scopes,
    serve,
    sessions,
    status,
    transfer,
    verify,
)

EPILOG = (
    "Exit status: 0 done; 1 refused or invalid; 2 wrong usage; 3 unknown outcome or not reachable. "
    "Release nothing unless it is 0."
)

_PLAIN: Final = {
    "Value error, ": "",
    "Input should be a valid integer, unable to parse string as an integer": "it is not a whole number",
    "Input should be a valid number, unable to parse string as a number": "it is not a number",
    "Input should be": "it must be",
}
"""Texts of the option parser, and plainer ones for them."""


class _Commands(TyperGroup):
    """The commands, with plainer texts for errors in options."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except typer.BadParameter as wrong:
            for text, plain in _PLAIN.items():
                wrong.message = wrong.message.replace(text, plain)
            raise


# Tracebacks without local variables: those may hold an API key.
app = typer.Typer(
    cls=_Commands,
    help="Counts the privacy loss of each dataset, and refuses releases that would exceed its budgets.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        output.console().print(f"odometer {version('privacy-odometer')}")
        raise typer.Exit


@app.callback()
def _command(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    output.new_console()


app.command("serve")(serve.serve)
app.add_typer(datasets.app, name="dataset")
app.add_typer(budgets.app, name="budget")
app.command("charge")(charges.charge)
app.command("check")(charges.check)
app.command("events")(events.events)
app.command("hold")(holds.hold)
app.command("settle")(holds.settle)
app.command("holds")(holds.holds)
app.command("sessions")(sessions.sessions)
app.command("close-session")(sessions.close_session)
app.command("derived")(derived.derived)
app.command("lineage")(derived.lineage)
app.command("status")(status.status)
app.command("scopes")(scopes.scopes)
app.command("ledger")(ledger.ledger)
app.command("verify")(verify.verify)
app.command("unfreeze")(datasets.unfreeze)
app.command("export")(transfer.export)
app.command("import")(transfer.import_)
app.command("convert")(charges.convert)
app.command("mechanisms")(mechanisms.mechanisms)
app.add_typer(keys.app, name="key")
app.add_typer(principals.app, name="principal")


def main() -> None:
    """Run the command line; exits the process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ε still shows the rest
    app(prog_name="odometer")
