"""Errors in plain words on stderr, and the exit status of each."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from api.cli import words

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
    from api.cli.common import shown_store

    where = f"the service at {shown_store(url)}"
    how = (
        "An admin makes one with `odometer key create`, or with `odometer key add` for somebody who had one; "
        "the first start of the service printed one."
    )
    if not given:
        return f"{where} wants an API key, and none was given. Set ODOMETER_KEY, or give --key.\n{how}"
    return (
        f"{where} does not take this API key: it is not one of its keys, was revoked, or has expired. "
        f"Set ODOMETER_KEY, or give --key, to all of a key of this service.\n{how}"
    )


def _refused(problem: Mapping[str, Any]) -> Iterator[str]:
    yield f"refused: {problem.get('detail')}"
    yield from refusals(problem.get("refusals", ()))
    yield from would_fit(problem.get("would_fit") or {})
    yield from notes(problem)
    yield "Nothing was charged. Release nothing."


def refusals(items: Any) -> Iterator[str]:
    """A line for each budget that refuses."""
    from api.cli.common import number, up

    for item in items:
        order = f" at order {number(item['order'])}" if item.get("order") else ""
        numbers = f"limit {number(item['limit'])}, spent {up(item['spent'])}, with this {up(item['after'])}"
        short = f", short by {up(item['short_by'])}" if item["short_by"] else ""
        yield f"  {item['budget']} ({item['kind']}{order}{_where(item)}): {numbers}{short}"
        yield f"    {item['reason']}{_until(item)}"


def _where(item: Mapping[str, Any]) -> str:
    """Whose odometer refused, where it is not the whole dataset's."""
    from api.cli.tables import scope_words

    scope = scope_words(item.get("scope", "dataset"))
    window = f"within one {item['window']}" if item.get("window") else ""
    return "".join(f", {words_}" for words_ in (scope, window) if words_)


def _until(item: Mapping[str, Any]) -> str:
    from api.cli.common import moment

    return f"; it starts anew at {moment(item['renews'])}" if item.get("renews") else ""


def notes(answer: Mapping[str, Any]) -> Iterator[str]:
    """What is to be said of how a charge is counted, of a receipt, a check or a refusal."""
    for note in answer.get("notes") or ():
        yield f"Note: {note}."


def would_fit(fit: Mapping[str, Any]) -> Iterator[str]:
    """What would fit instead, if anything."""
    found = []
    if fit.get("largest_count"):
        found.append(f"a count of at most {fit['largest_count']}")
    if fit.get("least_noise"):
        said = words.said(fit["least_noise"])
        found.append(f"this with {'less δ or ' if 'delta=' in said else ''}more noise: {said}")
    if fit.get("leading_items"):
        found.append(f"the first {fit['leading_items']} of the list")
    yield f"What would fit: {', or '.join(found)}." if found else "No count and no amount of noise would fit."
