"""Reading JSON from outside: well formed first, valid second, with errors that name the field."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

from odometer_accountant.bounds import BODY_MAX
from odometer_accountant.errors import BodyTooLarge, InvalidRequest, MalformedBody
from odometer_accountant.model import STORED
from odometer_accountant.plain_text import fault as unseen
from odometer_accountant.plain_text import surrogate
from odometer_accountant.requests.effort import check_effort
from odometer_accountant.requests.percent import as_share
from odometer_accountant.requests.suggestions import fields_at, instead, kind_instead, near

T = TypeVar("T")

STRUCTURES_MAX: Final = 10_000
"""Objects and lists in one body: more than any request needs, and few enough to be refused quickly."""
VALUES_MAX: Final = 50_000
"""Values in one body, counted by the commas and colons that are in it."""
_DEPTH_MAX: Final = 32
_DIGITS_MAX: Final = 1000
"""Of a whole number."""
_ERRORS_SHOWN: Final = 20
_SHOWN: Final = 80
"""So many characters of a name that came from outside are repeated."""
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
"""Errors of pydantic as a person would say them."""


class JsonBody(bytes):
    """The bytes of a request with the JSON document in them, so that it is parsed once per request.

    The document is shared by all that read the body: copy it before you change it.
    """

    document: Any

    @classmethod
    def parse(cls, body: bytes) -> "JsonBody":
        """Raises MalformedBody and BodyTooLarge as `read_json`."""
        if isinstance(body, cls):
            return body
        parsed = cls(body)
        parsed.document = read_json(body)
        return parsed


def read_json(body: bytes) -> Any:
    """The document in `body`. Raises MalformedBody for anything but one strict JSON document.

    Refused: wrong syntax or encoding, NaN and infinities, a key twice in one object, deep nesting, and,
    before anything is parsed, too many values. A number that is not the one that was written is kept as a
    `Misread`: see `misread`. Raises BodyTooLarge above BODY_MAX bytes.
    """
    if isinstance(body, JsonBody):
        return body.document
    if len(body) > BODY_MAX:
        raise BodyTooLarge(f"the body has more than {BODY_MAX} bytes, which is the most that is read")
    structures = body.count(b"{") + body.count(b"[")
    values = body.count(b",") + body.count(b":")
    if structures > STRUCTURES_MAX or values > VALUES_MAX:
        raise MalformedBody(
            f"the body has more than {STRUCTURES_MAX} objects and lists, or {VALUES_MAX} values, which "
            "is the most that is read: send it in parts"
        )
    if not body.strip():
        raise MalformedBody("the body is empty: send a JSON object, {} where there is nothing to say")
    try:
        text = body.decode("utf-8")
        document = json.loads(
            text,
            object_pairs_hook=_no_duplicates,
            parse_constant=_no_constant,
            parse_float=number_of,
            parse_int=_whole_number_of,
        )
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

    Raises MalformedBody, BodyTooLarge or InvalidRequest; TooMuchToCompute, before anything is computed.
    """
    found, refused = understood(kind, body)
    if refused is not None:
        raise refused
    return found


def understood(
    kind: type[T] | TypeAdapter[T], body: bytes | Mapping[str, Any], document: Any = None
) -> tuple[T, InvalidRequest | None]:
    """`body` as a `kind`, and why it is refused if it is new: None for what is valid today.

    A rule of validity that came later than the kind it is about is skipped where the context is STORED: what
    was taken once can then be read again, and a retry of it is found by its idempotency key. Whoever calls
    this raises the second part unless the key is known. `document`: the body as `read_json` reads it.
    Raises MalformedBody, BodyTooLarge, or InvalidRequest for what was never valid; TooMuchToCompute before
    anything is computed.
    """
    if document is None:
        document = read_json(body) if isinstance(body, bytes) else body
    check_effort(document)
    raw = body if isinstance(body, bytes) else dumps(body)
    _check_surrogates(raw, document)
    adapter: TypeAdapter[T] = kind if isinstance(kind, TypeAdapter) else TypeAdapter(kind)
    try:
        return adapter.validate_json(raw), misread(document)
    except ValidationError as error:
        refused = refusal(error, document, kind)
    try:
        return adapter.validate_json(raw, context=STORED), refused
    except ValidationError:
        raise refused from None


def _check_surrogates(raw: bytes, document: Any) -> None:
    """Raise InvalidRequest for text that has no UTF-8, which JSON can write as an escape."""
    if b"\\ud" not in raw and b"\\uD" not in raw:
        return
    found = surrogate(document)
    if found is not None:
        field = ".".join(map(str, found[0])) or "body"
        message = unseen(found[1]) or ""
        raise InvalidRequest(f"{field}: {message}", errors=[{"field": field, "message": message}])


class Misread(float):
    """A number whose shortest decimal is not the number that was written: it has no such float."""

    text: str


def number_of(text: str) -> float:
    """The float of a decimal number; a `Misread` where another number was written.

    A number means its shortest decimal (SOUNDNESS section 7): what lies between two floats, or between 0 and
    the least one, would be taken for something else than was asked. Raises ValueError for what is no number.
    """
    value = float(text)
    if repr(value) == text or not math.isfinite(value):
        return value
    try:
        same = Decimal(text) == Decimal(repr(value))
    except InvalidOperation:  # an exponent of twenty digits
        same = value == 0 and not re.search("[1-9]", re.split("[eE]", text)[0])
    if same:
        return value
    wrong = Misread(value)
    wrong.text = text
    return wrong


def as_written(text: Any) -> Any:
    """What was given, of which pydantic makes a number. Raises ValueError for one that no float has."""
    try:
        number = number_of(text) if isinstance(text, str) else text
    except ValueError:
        return text  # pydantic says so
    if type(number) is Misread:
        raise ValueError(why_misread(number))
    return text


def _whole_number_of(text: str) -> int | float:
    """As `number_of`, of a number without a point: up to 2^53 each is a float of its own."""
    if len(text) > _DIGITS_MAX:
        raise ValueError(f"a number has {len(text)} digits; at most {_DIGITS_MAX} are read")
    number = int(text)
    if abs(number) <= 2**53:
        return number
    as_float = number_of(text)
    return as_float if isinstance(as_float, Misread) else number


def why_misread(number: Misread) -> str:
    """What to say of it, and what works."""
    near = float(number)
    below = near if Decimal(repr(near)) < _written(number) else math.nextafter(near, -math.inf)
    above = math.nextafter(below, math.inf)
    text = number.text if len(number.text) <= _SHOWN else f"{number.text[:_SHOWN]}…"
    return (
        f"a 64-bit float cannot hold {text}, which would be taken for {near!r}: "
        f"write {below!r} or {above!r}, the nearest that it can"
    )


def _written(number: Misread) -> Decimal:
    """What was written, or a number on the same side of the float."""
    try:
        return Decimal(number.text)
    except InvalidOperation:  # not zero, and nearer to it than any float
        return Decimal("-1e-400" if number.text.startswith("-") else "1e-400")


def misread(document: Any) -> InvalidRequest | None:
    """Why a document's numbers are not what was written, None where they are."""
    found = list(_misread(document, ()))[:_ERRORS_SHOWN]
    if not found:
        return None
    errors = [
        {"field": ".".join(map(str, place)) or "body", "message": why_misread(number)}
        for place, number in found
    ]
    return InvalidRequest(f"{errors[0]['field']}: {errors[0]['message']}", errors=errors)


def _misread(document: Any, place: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Misread]]:
    if isinstance(document, Misread):
        yield place, document
    elif isinstance(document, Mapping):
        for name, item in document.items():
            yield from _misread(item, (*place, name))
    elif isinstance(document, list | tuple):
        for index, item in enumerate(document):
            yield from _misread(item, (*place, index))


def dumps(document: Any) -> bytes:
    """JSON bytes of a document given in Python. Raises MalformedBody for what JSON cannot hold."""
    try:
        return json.dumps(document, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise MalformedBody(f"not a JSON document: {error}") from error


def invalid(error: ValidationError, document: Any, kind: Any) -> NoReturn:
    """Raise the InvalidRequest that `refusal` makes."""
    raise refusal(error, document, kind) from error


def refusal(error: ValidationError, document: Any, kind: Any) -> InvalidRequest:
    """Lists each wrong field of `document`: where it is and what would be right.

    kind: the type that it should have been of, whose names are told when one is wrong.
    """
    faults = error.errors(include_url=False, include_input=False)
    found = [
        item for item in faults if item["type"] != "too_short" or not _has_faulty_items(item["loc"], faults)
    ]
    shown = [  # in words only those that are shown: there may be thousands
        {"field": _field(item, document), "message": _message(item, kind) + _hint(item, document)}
        for item in found[:_ERRORS_SHOWN]
    ]
    first = shown[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return InvalidRequest(f"{first['field']}: {first['message']}{more}", errors=shown)


def _message(fault: Any, kind: Any) -> str:
    """What is wrong, in plain words."""
    said = _WORDS.get(fault["type"])
    if said is None:
        return str(fault["msg"]).removeprefix("Value error, ")
    known = dict(fault.get("ctx", {}))
    if fault["type"] == "extra_forbidden":
        *place, name = fault["loc"]
        known["instead"] = instead(str(name), fields_at(kind, place))
    if fault["type"] == "union_tag_invalid":
        known["tag"] = known["tag"][:_SHOWN]
        known["instead"] = kind_instead(known["tag"], _QUOTED.findall(known["expected_tags"]))
    in_s = str(fault["loc"][-1]).endswith("_s") if fault["loc"] else False
    for bound in _BOUNDS & known.keys():
        known[bound] = _exactly(known[bound], seconds=in_s)
    return said.format(**known)


def _exactly(bound: float, *, seconds: bool) -> str:
    """A bound with all its digits: one that was rounded might be refused. Whole days are said of seconds."""
    whole = abs(bound) < _PLAIN_BELOW and bound == int(bound)  # an infinity is above
    text = str(int(bound)) if whole else repr(bound)
    if not seconds:
        return text
    days = f" ({int(bound) // _DAY_S} days)" if whole and bound > _DAY_S and not bound % _DAY_S else ""
    return f"{text} {'second' if text == '1' else 'seconds'}{days}"


def _hint(fault: Any, document: Any) -> str:
    """How to write what was given, where that is clear: a share in percent, a whole number with a point."""
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
    named = []
    for place, part in enumerate(location, 1):
        try:
            here = here[part]
        except (LookupError, TypeError):
            if fault["type"] != "missing" or place != len(location):
                continue
        named.append(str(part))
    return ".".join(named) or "body"


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
