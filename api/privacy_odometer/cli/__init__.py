"""The command `odometer`: serve, ask, read and verify.

Client commands go through `odometer_client`: to a service, or to a ledger of this machine.
"""

import io
import sys
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from privacy_odometer.cli import (
    budgets,
    charges,
    datasets,
    derived,
    events,
    freezing,
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
    "Exit status: 0 done; 1 refused or not valid; 2 wrong usage; 3 unsure or not reachable. "
    "Release nothing unless it is 0."
)

_PLAIN: Final = {
    "Value error, ": "",
    "Input should be a valid integer, unable to parse string as an integer": "it is not a whole number",
    "Input should be a valid number, unable to parse string as a number": "it is not a number",
    "Input should be": "it must be",
}
"""What the parser of options says, and the plain words for it."""


class _Commands(TyperGroup):
    """The commands, whose errors are in plain words."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except typer.BadParameter as wrong:
            for said, plain in _PLAIN.items():
                wrong.message = wrong.message.replace(said, plain)
            raise


# Tracebacks without local variables: those may hold an API key.
app = typer.Typer(
    cls=_Commands,
    help="Keeps how much privacy each dataset has lost, and refuses what would lose too much.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        output.out.print(f"odometer {version('privacy-odometer')}")
        raise typer.Exit


@app.callback()
def _command(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    output.fit_terminal()


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
app.command("unfreeze")(freezing.unfreeze)
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
            stream.reconfigure(errors="replace")  # where ε cannot be shown, the rest still is
    app(prog_name="odometer")
