"""Words the errors of pydantic for people: which field is wrong, and what would be right."""

import re
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from pydantic import ValidationError

from odometer_accountant.errors import InvalidRequest
from odometer_accountant.requests.percent import as_share
from odometer_accountant.requests.suggestions import fields_at, instead, kind_instead, near
from odometer_accountant.requests.written_numbers import ERRORS_SHOWN, TEXT_SHOWN

_QUOTED: Final = re.compile("'([^']*)'")
_BOUNDS: Final = frozenset({"gt", "ge", "lt", "le"})
_PLAIN_BELOW: Final = 1e15
"""Whole numbers up to here are written without an exponent."""
_DAY_S: Final = 86_400
_WORDS: Final = {
    "extra_forbidden": "there is no field of this name: {instead}",
    "missing": "is missing",
    "union_tag_invalid": "there is no kind {tag!r}: {instead}",
    "union_tag_not_found": "needs a kind",
    "bool_type": "must be true or false",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "finite_number": "must be a finite number",
    "string_type": "must be text",
    "string_too_short": "needs at least {min_length} character(s)",
    "string_too_long": "takes at most {max_length} character(s)",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "needs at least {min_length}, has {actual_length}",
    "too_long": "takes at most {max_length}",
    "string_pattern_mismatch": "does not have the form {pattern}",
}
"""The message for each type of pydantic error."""


def invalid(error: ValidationError, document: Any, kind: Any) -> NoReturn:
    """Raises the InvalidRequest of `refusal`."""
    raise refusal(error, document, kind) from error


def refusal(error: ValidationError, document: Any, kind: Any) -> InvalidRequest:
    """The InvalidRequest for `error`: each wrong field of `document`, and what would be right.

    `kind` is the expected type; its field names are suggested for a misspelt one.
    """
    faults = error.errors(include_url=False, include_input=False)
    found = [
        item for item in faults if item["type"] != "too_short" or not _has_faulty_items(item["loc"], faults)
    ]
    shown = [  # in words only those that are shown: there may be thousands
        {"field": _field(item, document), "message": _message(item, kind) + _hint(item, document)}
        for item in found[:ERRORS_SHOWN]
    ]
    first = shown[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return InvalidRequest(f"{first['field']}: {first['message']}{more}", errors=shown)


def _message(fault: Any, kind: Any) -> str:
    """Describes a validation error in plain words."""
    said = _WORDS.get(fault["type"])
    if said is None:
        return str(fault["msg"]).removeprefix("Value error, ")
    known = dict(fault.get("ctx", {}))
    if fault["type"] == "extra_forbidden":
        *place, name = fault["loc"]
        known["instead"] = instead(str(name), fields_at(kind, place))
    if fault["type"] == "union_tag_invalid":
        known["tag"] = known["tag"][:TEXT_SHOWN]
        known["instead"] = kind_instead(known["tag"], _QUOTED.findall(known["expected_tags"]))
    in_s = str(fault["loc"][-1]).endswith("_s") if fault["loc"] else False
    for bound in _BOUNDS & known.keys():
        known[bound] = _exactly(known[bound], seconds=in_s)
    return said.format(**known)


def _exactly(bound: float, *, seconds: bool) -> str:
    """A bound with all its digits, since a rounded one might be refused. Seconds are also shown in days."""
    whole = abs(bound) < _PLAIN_BELOW and bound == int(bound)  # an infinity is above
    text = str(int(bound)) if whole else repr(bound)
    if not seconds:
        return text
    days = f" ({int(bound) // _DAY_S} days)" if whole and bound > _DAY_S and not bound % _DAY_S else ""
    return f"{text} {'second' if text == '1' else 'seconds'}{days}"


def _hint(fault: Any, document: Any) -> str:
    """A hint how to write the value: a share in percent, a whole number with a point, a misspelt choice."""
    given, bounds = _value(fault["loc"], document), fault.get("ctx", {})
    if fault["type"] == "float_type" and isinstance(given, str):
        return as_share(given)
    if fault["type"] in ("literal_error", "enum") and isinstance(given, str):
        meant = near(given, _QUOTED.findall(bounds["expected"]))
        return f": did you mean {meant}?" if meant else ""
    if isinstance(given, bool) or not isinstance(given, int | float):
        return ""
    if fault["type"] in ("int_type", "int_from_float"):
        # Up to where every whole number is a float of its own.
        return f": write {int(given)}" if abs(given) <= 2**53 and given == int(given) else ""
    share = bounds.get("le", bounds.get("lt")) == 1 and "delta" not in str(fault["loc"][-1])
    return as_share(f"{given!r}%") if share and 1 < given <= 100 else ""  # nobody gives a delta in percent


def _value(location: tuple[int | str, ...], document: Any) -> Any:
    """The value at the location of an error. Names that pydantic adds for a member of a union are skipped."""
    for part in location:
        try:
            document = document[part]
        except (LookupError, TypeError):
            continue
    return document


def _has_faulty_items(location: tuple[int | str, ...], faults: Sequence[Any]) -> bool:
    """Whether a list is reported too short only because pydantic did not count its invalid items."""
    depth = len(location)
    return any(len(item["loc"]) > depth and item["loc"][:depth] == location for item in faults)


def _field(fault: Any, document: Any) -> str:
    """The path of the error in `document`, without the names that pydantic adds for a member of a union."""
    location, here = fault["loc"], document
    named = []
    for place, part in enumerate(location, 1):
        try:
            here = here[part]
        except (LookupError, TypeError):
            if fault["type"] != "missing" or place != len(location):
                continue
        named.append(str(part))
    return ".".join(named) or "body"
