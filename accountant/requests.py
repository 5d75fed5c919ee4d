"""What a caller sends, checked: bodies, names, keys, pages."""

import re
from collections.abc import Mapping
from typing import Any, Final

from accountant.budgets import ANY_BUDGET, Budget
from accountant.commands import Prepared, prepare
from accountant.documents import dumps, read_json, validated
from accountant.errors import IdempotencyKeyRequired, InvalidRequest, UnknownDataset
from accountant.mechanisms import Mechanism

Body = bytes
PAGE_MAX: Final = 1000
_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_KEY: Final = re.compile(r"[\x21-\x7e]{1,128}")
_PRINCIPAL: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


def prepared_charge(body: Body | Mapping[str, Any]) -> Prepared:
    """A charge request, parsed and warmed. Raises MalformedBody, InvalidRequest or BodyTooLarge."""
    if isinstance(body, bytes):
        return prepare(body, read_json(body)).warm()
    return prepare(dumps(body), body).warm()


def is_slug(name: str) -> bool:
    """Whether a dataset may be called that."""
    return _SLUG.fullmatch(name) is not None


def unknown_dataset(name: str) -> UnknownDataset:
    """The refusal of a name that no dataset has."""
    return UnknownDataset(
        f"there is no dataset {name[:80]!r}: create it first, it is never created on the fly"
    )


def idempotency_key(key: str | None) -> str:
    """The key, if usable. Raises IdempotencyKeyRequired."""
    if key is None or not _KEY.fullmatch(key):
        raise IdempotencyKeyRequired(
            "send an Idempotency-Key header of 1 to 128 printable ASCII characters without spaces, "
            "new for each new charge and the same for each retry of it"
        )
    return key


def valid_principal(principal: str) -> str:
    """The principal, if it can be one. Raises InvalidRequest."""
    if not _PRINCIPAL.fullmatch(principal):
        raise InvalidRequest("principal: 1 to 64 letters, digits, and . _ : -")
    return principal


def page_limit(limit: int) -> int:
    """The page size, if allowed. Raises InvalidRequest."""
    if not 1 <= limit <= PAGE_MAX:
        raise InvalidRequest(
            f"limit: 1 to {PAGE_MAX}, got {limit}", errors=[{"field": "limit", "message": f"1 to {PAGE_MAX}"}]
        )
    return limit


def named_budget(body: Body | Mapping[str, Any], name: str) -> Budget:
    """A budget document under the name it is stored under. Raises MalformedBody or InvalidRequest."""
    document = read_json(body) if isinstance(body, bytes) else dict(body)
    if isinstance(document, dict) and document.setdefault("name", name) != name:
        raise InvalidRequest(
            "name: a budget keeps its name", errors=[{"field": "name", "message": "differs"}]
        )
    return validated(ANY_BUDGET, document)


def mechanism_document(kind: type[Mechanism]) -> dict[str, Any]:
    """A mechanism as `GET /v1/mechanisms` shows it."""
    return {
        "kind": kind.model_fields["kind"].default,
        "title": kind.title,
        "summary": kind.purpose,
        "formula": kind.formula,
        "source": kind.source,
        "adjacency": sorted(adjacency.value for adjacency in kind.adjacencies),
        "elsewhere": kind.elsewhere,
        "avoid": kind.avoid,
        "schema": kind.model_json_schema(),
        "examples": list(kind.examples),
    }
