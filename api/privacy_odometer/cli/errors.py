"""Errors in plain words on stderr, and the exit status of each."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from odometer_client import wording

REFUSED: Final = 1
"""Refused, or not valid: asking the same again does not help."""
USAGE: Final = 2
UNSURE: Final = 3
"""Not reachable, or nobody knows whether it was recorded: nothing may be released."""
INTERNAL: Final = 70
"""The service ended because its ledger thread died."""
CONFIGURATION: Final = 78
"""The settings, or this machine, do not let the service start."""


def status(error: Exception) -> int:
    """The exit status that an error of the client stands for."""
    from odometer_client import errors

    unsure = errors.OutcomeUnknown | errors.Unreachable | errors.UnexpectedAnswer | errors.PartlyCharged
    if isinstance(error, unsure):
        return UNSURE
    if isinstance(error, errors.ProblemError) and error.status >= 500:
        return UNSURE
    return REFUSED


def explain(error: Exception) -> str:
    """What was wrong, where, and what would work."""
    from odometer_client import errors

    if isinstance(error, errors.BudgetExceeded):
        return "\n".join(_refused(error.problem))
    if isinstance(error, errors.SeveralShards):
        return f"{error.detail}\n`odometer charge` does so by itself; `check` and `hold` take one shard's."
    if isinstance(error, errors.InvalidRequest):
        wrong = [f"  {item['field']}: {item['message']}" for item in error.problem.get("errors", ())]
        return "\n".join([error.title, *wrong] if wrong else [error.detail])
    return str(error)


def key_not_taken(url: str, *, given: bool) -> str:
    """That the service wants another key, or one at all, and how it is given here."""
    from privacy_odometer.cli.output import shown_store

    where = f"the service at {shown_store(url)}"
    how = (
        "An admin makes one with `odometer key create`, or with `odometer key add` for somebody who had one; "
        "the first start of the service printed one."
    )
    if not given:
        return f"{where} wants an API key, and none was given. Set ODOMETER_KEY, or give --key.\n{how}"
    return (
        f"{where} does not take this API key: it is not one of its keys, was revoked, or has expired. "
        f"Set ODOMETER_KEY (or --key) to a whole key of this service: po_….\n{how}"
    )


def _refused(problem: Mapping[str, Any]) -> Iterator[str]:
    first, *others = wording.refused(problem)
    yield f"refused: {first}"
    yield from others
    yield "Nothing was charged. Release nothing."
