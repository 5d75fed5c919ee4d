"""The caller of a request: the principal of an API key, and its permissions."""

from collections.abc import Callable
from dataclasses import dataclass, field

from odometer_accountant.errors import (
    Forbidden,
    Unauthenticated,
)
from odometer_accountant.ledger.commands import Caller
from odometer_accountant.ledger.principals import Role


@dataclass(frozen=True)
class Identity:
    """The owner of a key. `principal` is an opaque id; its name lives in a note apart from the entries."""

    key: str
    role: Role
    principal: str
    revoked: bool = False
    """Whether it is out of use: revoked, or its time is over for good."""
    team: str | None = None
    acts_for: frozenset[str] = frozenset()
    expires: str | None = None
    """From when on it is no longer taken."""
    against: Callable[[str, bool], str | None] | None = field(default=None, compare=False, repr=False)
    """What stands against charging as a principal of that name (`KeyRing.against`)."""

    @property
    def caller(self) -> Caller:
        """As the accountant knows who asks."""
        return Caller(self.principal, self.team, self.acts_for, self.role is Role.admin, self.against)

    def require(self, role: Role) -> None:
        """Raise Forbidden unless this key may do what `role` may."""
        if not self.role.covers(role):
            raise Forbidden(
                f"this needs a key of role {role.value}, yours is {self.role.value}", role=role.value
            )


def allowed(identity: Identity | None, role: Role) -> Identity:
    """The identity, if it may do what `role` may. Raises Unauthenticated or Forbidden."""
    if identity is None:
        raise Unauthenticated(
            "send `Authorization: Bearer <key>` with a key that was not revoked and has not expired; "
            "an admin makes one with `odometer key create`"
        )
    identity.require(role)
    return identity
