"""Principals and API keys."""

from odometer_accountant.service.responses.base import Reply


class KeyReply(Reply):
    """An API key, without its token."""

    id: str
    role: str
    """What its principal may do."""
    principal: str
    name: str | None
    """What its principal is called; null without a name, and when it was erased."""
    revoked: bool
    team: str | None
    acts_for: list[str]
    created: str
    expires: str | None
    """From when on it is not taken; null: it is taken until it is revoked."""
    expired: bool
    """Whether its time is over."""
    rotated: str | None
    """When it last took the place of another key, or another took its own."""
    replaces: str | None
    """The key whose place it took."""
    replaced_by: str | None
    """The key that took its place."""


class KeysReply(Reply):
    """API keys, the oldest first."""

    items: list[KeyReply]
    next: None


class NewKeyReply(Reply):
    """A new key. The token is shown this once."""

    id: str
    token: str
    role: str
    principal: str
    name: str | None
    team: str | None
    acts_for: list[str]
    created: str
    expires: str | None
    """From when on it is not taken; null: it is taken until it is revoked."""
    replaces: str | None
    """The key whose place it takes."""


class PrincipalReply(Reply):
    """A principal: it is charged, whatever keys it has."""

    id: str
    name: str | None
    """What it is called; null without a name, and when it was erased."""
    name_erased: bool
    """It had a name, which nobody else will have."""
    role: str
    team: str | None
    acts_for: list[str]
    created: str
    keys: int
    """How many keys are taken for it now."""
    etag: str
    """Send it as If-Match to change the principal."""


class PrincipalsReply(Reply):
    """All principals, the oldest first."""

    items: list[PrincipalReply]
    next: None


class MeReply(Reply):
    """The owner of this key."""

    key: str
    role: str
    principal: str
    team: str | None
    acts_for: list[str]
    expires: str | None
    """From when on the key is not taken."""
