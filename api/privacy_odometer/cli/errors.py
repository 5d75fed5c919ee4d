"""Exit statuses, and errors as texts on the standard error."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

import typer

from odometer_client import wording
from privacy_odometer.cli.output import printable

REFUSED: Final = 1
"""Refused or not valid. The same request fails again."""
USAGE: Final = 2
"""Wrong usage. Nothing was sent."""
UNSURE: Final = 3
"""Not reachable, or unknown whether it was recorded. Release nothing."""
INTERNAL: Final = 70
"""The service stopped because its ledger thread died."""
CONFIGURATION: Final = 78
"""The service cannot start with these settings, or on this machine."""


def end(text: str, status: int) -> NoReturn:
    """Print an error on the standard error and end the command with `status`."""
    print(f"odometer: {printable(text)}", file=sys.stderr)
    raise typer.Exit(status)


def status(error: Exception) -> int:
    """The exit status for an error of the client."""
    from odometer_client import errors

    unsure = errors.OutcomeUnknown | errors.Unreachable | errors.UnexpectedAnswer | errors.PartlyCharged
    if isinstance(error, unsure):
        return UNSURE
    if isinstance(error, errors.ProblemError) and error.status >= 500:
        return UNSURE
    return REFUSED


def explain(error: Exception) -> str:
    """The text for an error of the client: what is wrong, where, and what would work."""
    from odometer_client import errors

    if isinstance(error, errors.BudgetExceeded):
        return "\n".join(_refused(error.problem))
    if isinstance(error, errors.SeveralShards):
        return (
            f"{error.detail}\n`odometer charge` charges each shard in turn. `check` and `hold` take the "
            "units of one shard."
        )
    if isinstance(error, errors.InvalidRequest):
        wrong = [f"  {item['field']}: {item['message']}" for item in error.problem.get("errors", ())]
        return "\n".join([error.title, *wrong] if wrong else [error.detail])
    return str(error)


def key_needed(service: str, *, given: bool) -> str:
    """The text for a service that refused the API key, or that got none."""
    how = (
        "An admin makes a key with `odometer key create`, or another one for the same principal with "
        "`odometer key add`. The first start of the service printed the first admin key."
    )
    if not given:
        return f"{service} needs an API key, and none was given. Set ODOMETER_KEY, or give --key.\n{how}"
    return (
        f"{service} refused this API key: it is unknown, revoked or expired. "
        f"Set ODOMETER_KEY (or --key) to a whole key of this service: po_….\n{how}"
    )


def _refused(problem: Mapping[str, Any]) -> Iterator[str]:
    first, *others = wording.refused(problem)
    yield f"refused: {first}"
    yield from others
    yield "Nothing was charged. Release nothing."
