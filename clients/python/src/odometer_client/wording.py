"""Refusals and notes as lines that a person reads: in exceptions, and on the command line."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any, Final

DIGITS: Final = 6
"""Significant digits shown."""


def up(value: float | None) -> str:
    """A loss in few digits, never shown smaller than it is; "no bound" for None and infinity."""
    return _rounded(value, ROUND_CEILING)


def down(value: float | None) -> str:
    """What is left in few digits, never shown larger than it is."""
    return _rounded(value, ROUND_FLOOR)


def _rounded(value: float | None, direction: str) -> str:
    if value is None or math.isinf(value):
        return "no bound"
    # A part in 10^12 first: what is 0.1 but for the last bit of a float is shown as 0.1.
    near = Context(prec=12).create_decimal(repr(value))
    shown = Context(prec=DIGITS, rounding=direction).create_decimal(near)
    return f"{float(shown):.{DIGITS}g}"


def number(value: float | None) -> str:
    """A parameter as it was given."""
    return "" if value is None else f"{value:.12g}"


def moment(time: str) -> str:
    """A ledger's time to the second, in UTC."""
    return f"{time[:19].replace('T', ' ')}Z"


def scope_words(scope: str) -> str:
    """Whose odometer, in words; nothing for the whole dataset's."""
    kind, _, name = scope.partition("/")
    if not name:
        return ""
    return f"each {kind}" if name == "*" else f"{kind} {name}"


def mechanism_words(document: Mapping[str, Any]) -> str:
    """A mechanism's document as words: `gaussian noise_multiplier=10`."""
    return " ".join([str(document.get("kind")), *parameter_words("", document)])


def parameter_words(prefix: str, document: Mapping[str, Any]) -> list[str]:
    """The parameters of a mechanism's document, each as `name=value`."""
    parts: list[str] = []
    for name, value in document.items():
        if isinstance(value, Mapping):
            parts += parameter_words(f"{prefix}{name}.", value)
        elif prefix or name != "kind":
            parts.append(f"{prefix}{name}={value if isinstance(value, str) else json.dumps(value)}")
    return parts


def refusals(items: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Two lines for each budget that refuses: its numbers, all in the budget's own parameter, and why."""
    for item in items:
        order = f" at order {number(item['order'])}" if item["kind"] == "renyi" and item.get("order") else ""
        after = up(item["after"])
        if item["after"] is None and item["kind"] == "approximate":
            after = "no ε at its δ"
        numbers = f"limit {number(item['limit'])}, spent {up(item['spent'])}, with this {after}"
        short = f", short by {up(item['short_by'])}" if item["short_by"] else ""
        yield f"  {item['budget']} ({item['kind']}{order}{_where(item)}): {numbers}{short}"
        yield f"    {item['reason']}{_until(item)}"


def _where(item: Mapping[str, Any]) -> str:
    """Whose odometer refused, where it is not the whole dataset's."""
    scope = scope_words(item.get("scope", "dataset"))
    window = f"within one {item['window']}" if item.get("window") else ""
    return "".join(f", {words}" for words in (scope, window) if words)


def _until(item: Mapping[str, Any]) -> str:
    return f"; it starts anew at {moment(item['renews'])}" if item.get("renews") else ""


def would_fit(fit: Mapping[str, Any]) -> str:
    """What would fit instead, if anything."""
    found = []
    if fit.get("largest_count"):
        found.append(f"a count of at most {fit['largest_count']}")
    if fit.get("least_noise"):
        said = mechanism_words(fit["least_noise"])
        found.append(f"this with {'less δ or ' if 'delta=' in said else ''}more noise: {said}")
    if fit.get("leading_items"):
        found.append(f"the first {fit['leading_items']} of the list")
    return (
        f"What would fit: {', or '.join(found)}." if found else "No count and no amount of noise would fit."
    )


def notes(answer: Mapping[str, Any]) -> Iterator[str]:
    """What there is to know of how a charge is counted, from a receipt, a check or a refusal."""
    for note in answer.get("notes") or ():
        yield f"Note: {note}."


def refused(problem: Mapping[str, Any]) -> Iterator[str]:
    """A refused charge: which budgets refuse, with numbers, and what would fit."""
    yield str(problem.get("detail"))
    yield from refusals(problem.get("refusals") or ())
    if problem.get("would_fit"):
        yield would_fit(problem["would_fit"])
    yield from notes(problem)
