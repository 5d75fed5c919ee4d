"""Converts events of the library dp_accounting (`DpEvent`, as JSON) to charges.

The library exports its events as named tuples. Their JSON has the fields of the tuple by name:

    {"class_name": "PoissonSampledDpEvent", "sampling_probability": 0.01,
     "event": {"class_name": "GaussianDpEvent", "noise_multiplier": 1.1}}

`module_name` may stand beside `class_name`. An unknown class or field is refused, with its name and its
place in the tree: an event that is skipped would be a loss that nobody counts. An event does not state an
adjacency: its noise is taken as relative to the sensitivity under the adjacency of the dataset.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from odometer_accountant.mechanisms import Model
from odometer_accountant.mechanisms.charge import ITEMS_MAX
from odometer_accountant.requests.dp_event_kinds import KINDS, REFUSED, EventKind
from odometer_accountant.requests.dp_event_plans import Event, Fields, Plan, refuse
from odometer_accountant.requests.json_input import validated
from odometer_accountant.requests.suggestions import instead

MODULES: Final = ("dp_accounting.dp_event", "dp_accounting")
"""Where the classes that are known come from; one of the same name from elsewhere is another class."""
DEPTH_MAX: Final = 24
"""Most events within each other."""
EVENTS_MAX: Final = 100_000
_NOTES_MAX: Final = 20
_MOST: Final = 1e300


class DpEvents(Model):
    """An event of dp_accounting, to be told as charges."""

    dp_event: dict[str, Any]
    """The event: `class_name`, and its fields by name; an event within it is such an object again."""


def convert_event(body: bytes | Mapping[str, Any]) -> dict[str, Any]:
    """{"charges": [{"mechanism", "count"}, …]} of a request, and `notes` on what of it loses nothing.

    Raises InvalidRequest: what, and where.
    """
    notes: list[str] = []
    found = charges(validated(DpEvents, body).dp_event, notes)
    if not found:
        notes.insert(0, "this event loses nothing: there is nothing to charge")
    return {"charges": found, **({"notes": notes[:_NOTES_MAX]} if notes else {})}


def charges(event: Any, notes: list[str] | None = None) -> list[dict[str, Any]]:
    """The charges for an event; none for an event without a loss. Raises InvalidRequest.

    To `notes` is added, with its place, what loses nothing because it runs 0 times or is made of nothing.
    """
    plan = _Walk([] if notes is None else notes).plan(event, "dp_event", 1)
    if len(plan) > ITEMS_MAX:
        refuse(
            "dp_event", f"is made of {len(plan)} different mechanisms: charge its parts, {ITEMS_MAX} at most"
        )
    return [{"mechanism": mechanism, "count": count} for mechanism, count in plan.values()]


class _Walk:
    """One tree of events, read once."""

    def __init__(self, notes: list[str]) -> None:
        self._events = 0
        self.notes = notes

    def plan(self, event: Any, path: str, depth: int) -> Plan:
        self._events += 1
        if depth > DEPTH_MAX or self._events > EVENTS_MAX:
            refuse(
                path, f"more than {DEPTH_MAX} events within each other, or {EVENTS_MAX} in all: charge parts"
            )
        if not isinstance(event, Mapping) or not isinstance(event.get("class_name"), str):
            refuse(path, "must be an event: an object with a class_name and the fields of that class")
        name, module = event["class_name"], event.get("module_name", MODULES[0])
        if module not in MODULES:
            refuse(path, f"{name} of module {module!r} is not known: those of {MODULES[0]} are")
        here = Event(self.plan, self.notes, path, name, depth)
        if name in REFUSED:
            here.refuse(REFUSED[name])
        kind = KINDS.get(name)
        if kind is None:
            here.refuse(
                "this class of events is not known here, so its loss would not be counted: charge the "
                f"mechanism that it stands for, or what was proved of it. {instead(name, KINDS)}"
            )
        return kind.plan(here, _fields(here, kind, event))


def _fields(here: Event, kind: EventKind, event: Mapping[str, Any]) -> Fields:
    """The fields of an event, each as it should be. Raises InvalidRequest."""
    given = {name: value for name, value in event.items() if name not in ("class_name", "module_name")}
    for name in given:
        if name not in kind.fields:
            here.refuse(
                f"its field {name[:60]!r} is not known here, and may change what the event costs: "
                f"{instead(name, kind.fields)}"
            )
    for name, what in kind.fields.items():
        if name not in given:
            if name not in kind.optional:
                here.refuse(f"its field {name!r} is missing")
        elif not _CHECKS[what](given[name]):
            refuse(f"{here.path}.{name}", f"{here.name}: must be {_WORDS[what]}")
    return given


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -_MOST < value < _MOST  # false for NaN; whole numbers have no bound of their own


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    "number": lambda value: _is_number(value) and value >= 0,
    "whole": _is_whole,
    "shape": lambda value: value == "inf" or (_is_number(value) and value >= 0),
    "steps": lambda value: _is_whole(value) or (_is_list(value) and all(_is_whole(item) for item in value)),
    "event": lambda _: True,
    "events": _is_list,
}
_WORDS: Final = {
    "number": "a finite number from 0 on",
    "whole": "a whole number from 0 on",
    "shape": 'a number from 0 on, or "inf"',
    "steps": "a whole number from 0 on, or a list of them",
    "events": "a list of events",
}
