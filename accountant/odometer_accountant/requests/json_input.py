"""Reads JSON from callers: first strictly parsed, then validated against a model."""

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

from odometer_accountant.bounds import BODY_MAX
from odometer_accountant.errors import BodyTooLarge, InvalidRequest, MalformedBody
from odometer_accountant.model import STORED
from odometer_accountant.plain_text import fault as unseen
from odometer_accountant.plain_text import surrogate
from odometer_accountant.requests.effort import check_effort
from odometer_accountant.requests.validation_errors import refusal
from odometer_accountant.requests.written_numbers import misread, number_of, whole_number_of

T = TypeVar("T")

STRUCTURES_MAX: Final = 10_000
"""Objects and lists in one body: more than any request needs, and few enough to be refused quickly."""
VALUES_MAX: Final = 50_000
"""Values in one body, counted by the commas and colons that are in it."""
_DEPTH_MAX: Final = 32


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
            parse_int=whole_number_of,
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


def dumps(document: Any) -> bytes:
    """JSON bytes of a document given in Python. Raises MalformedBody for what JSON cannot hold."""
    try:
        return json.dumps(document, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise MalformedBody(f"not a JSON document: {error}") from error


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"duplicate key {twice!r} in a JSON object")
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
