"""The kinds of mechanism."""

from typing import Any

from pydantic import Field

from odometer_accountant.service.responses.base import Reply


class MechanismReply(Reply):
    """A kind of mechanism: what it is for, where it is valid, what it costs and who proved it."""

    kind: str
    title: str
    summary: str
    formula: str
    source: str
    adjacency: list[str]
    elsewhere: str
    avoid: str
    schema_: dict[str, Any] = Field(alias="schema")
    """JSON schema of its parameters, with units and ranges."""
    examples: list[dict[str, Any]]


class MechanismsReply(Reply):
    """Every kind of mechanism."""

    items: list[MechanismReply]
    next: None
