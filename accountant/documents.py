"""Reading JSON from outside: well formed first, valid second, with errors that name the field."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

from accountant.errors import BodyTooLarge, InvalidRequest, MalformedBody
from accountant.mechanisms.base import ONE_LINE
from accountant.nearest import fields_at, instead
from accountant.percent import as_share

T = TypeVar("T")

BODY_MAX: Final = 256 * 1024
"""Largest body that is read, in bytes."""
_DEPTH_MAX: Final = 32
_ERRORS_SHOWN: Final = 20
_SHOWN: Final = 80
"""So many characters of a name that came from outside are repeated."""
_QUOTED: Final = re.compile("'([^']*)'")
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
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "too_short": "needs at least {min_length}, has {actual_length}",
    "too_long": "takes at most {max_length}",
    "string_pattern_mismatch": "does not have the form {pattern}",
}
"""Errors of pydantic as a person would say them."""


def read_json(body: bytes) -> Any:
    """The document in `body`. Raises MalformedBody for anything but one strict JSON document.

    Refused: wrong syntax or encoding, NaN and infinities, a key twice in one object, deep nesting.
    Raises BodyTooLarge, before anything is parsed, above BODY_MAX bytes.
    """
    if len(body) > BODY_MAX:
        raise BodyTooLarge(f"the body has more than {BODY_MAX} bytes, which is the most that is read")
    if not body.strip():
        raise MalformedBody("the body is empty: send a JSON object, {} where there is nothing to say")
    try:
        text = body.decode("utf-8")
        document = json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the body is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise MalformedBody("the body is nested too deeply") from error
    except ValueError as error:
        raise MalformedBody(f"the body is not JSON: {error}") from error
    if _depth(document) > _DEPTH_MAX:
        raise MalformedBody(f"the body is nested more than {_DEPTH_MAX} levels deep")
    return document


def validated(kind: type[T] | TypeAdapter[T], body: bytes | Mapping[str, Any]) -> T:
    """`body` (JSON bytes, or a decoded document) as a `kind`.

    Raises MalformedBody, BodyTooLarge or InvalidRequest.
    """
    document = read_json(body) if isinstance(body, bytes) else body
    adapter: TypeAdapter[T] = kind if isinstance(kind, TypeAdapter) else TypeAdapter(kind)
    try:
        return adapter.validate_json(body if isinstance(body, bytes) else dumps(body))
    except ValidationError as error:
        invalid(error, document, kind)


def dumps(document: Any) -> bytes:
    """JSON bytes of a document given in Python. Raises MalformedBody for what JSON cannot hold."""
    try:
        return json.dumps(document, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise MalformedBody(f"not a JSON document: {error}") from error


def invalid(error: ValidationError, document: Any, kind: Any) -> NoReturn:
    """Raise InvalidRequest that lists each wrong field of `document`: where it is and what would be right.

    kind: the type that it should have been of, whose names are told when one is wrong.
    """
    faults = error.errors(include_url=False, include_input=False)
    found = [
        {"field": _field(item, document), "message": _message(item, kind) + _hint(item, document)}
        for item in faults
        if item["type"] != "too_short" or not _has_faulty_items(item["loc"], faults)
    ]
    shown = found[:_ERRORS_SHOWN]
    first = shown[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    raise InvalidRequest(f"{first['field']}: {first['message']}{more}", errors=shown) from error


def _message(fault: Any, kind: Any) -> str:
    """What is wrong, in plain words."""
    said = _WORDS.get(fault["type"])
    if said is None:
        return str(fault["msg"]).removeprefix("Value error, ")
    if fault.get("ctx", {}).get("pattern") == ONE_LINE:
        return "must be one line, without control characters or marks that change the direction of text"
    known = dict(fault.get("ctx", {}))
    if fault["type"] == "extra_forbidden":
        *place, name = fault["loc"]
        known["instead"] = instead(str(name), fields_at(kind, place))
    if fault["type"] == "union_tag_invalid":
        known["tag"] = known["tag"][:_SHOWN]
        known["instead"] = instead(known["tag"], _QUOTED.findall(known["expected_tags"]))
    return said.format(**known)


def _hint(fault: Any, document: Any) -> str:
    """How to write what was given, where that is clear: a share in percent, a whole number with a point."""
    given, bounds = _value(fault["loc"], document), fault.get("ctx", {})
    if fault["type"] == "float_type" and isinstance(given, str):
        return as_share(given)
    if isinstance(given, bool) or not isinstance(given, int | float):
        return ""
    if fault["type"] in ("int_type", "int_from_float"):
        # Up to where every whole number is a float of its own.
        return f": write {int(given)}" if abs(given) <= 2**53 and given == int(given) else ""
    share = bounds.get("le", bounds.get("lt")) == 1 and "delta" not in str(fault["loc"][-1])
    return as_share(f"{given!r}%") if share and 1 < given <= 100 else ""  # nobody gives a delta in percent


def _value(location: tuple[int | str, ...], document: Any) -> Any:
    """What stands at a fault's location; the names that forms have for one possibility are not in it."""
    for part in location:
        try:
            document = document[part]
        except (LookupError, TypeError):
            continue
    return document


def _has_faulty_items(location: tuple[int | str, ...], faults: Sequence[Any]) -> bool:
    """Whether a list is only called too short because its items were not valid, and so not counted."""
    depth = len(location)
    return any(len(item["loc"]) > depth and item["loc"][:depth] == location for item in faults)


def _field(fault: Any, document: Any) -> str:
    """Where in `document` the fault is, without the names that forms have for one possibility of several."""
    location, here = fault["loc"], document
    shown = []
    for place, part in enumerate(location, 1):
        try:
            here = here[part]
        except (LookupError, TypeError):
            if fault["type"] != "missing" or place != len(location):
                continue
        shown.append(str(part))
    return ".".join(shown) or "body"


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return document


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _depth(document: Any) -> int:
    deepest, layer = 0, [document]
    while layer:
        deepest += 1
        layer = [
            child
            for item in layer
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if deepest > _DEPTH_MAX:
            break
    return deepest
