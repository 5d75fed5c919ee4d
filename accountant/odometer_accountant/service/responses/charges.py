"""Receipts of charges, and dry runs."""

from typing import Any

from odometer_accountant.service.responses.base import Reply


class LossReply(Reply):
    """A loss in each notion that it has a number in."""

    pure: float | None
    rho: float | None
    mu: float | None
    delta: float | None


class LeftReply(Reply):
    """The remainder of a budget: at one Rényi order where `order` is given, else in its own parameter."""

    budget: str
    scope: str
    """Whose: of a budget that many scopes have, the one touched that has used most of it."""
    window: str | None = None
    renews: str | None = None
    """When the window is over, and it starts anew."""
    kind: str
    order: float | None = None
    limit: float
    spent: float | None
    left: float
    used: float


class ChargeReply(Reply):
    """One charge of a receipt."""

    mechanism: dict[str, Any]
    count: int


class Receipt(Reply):
    """The charge is durable: what it is for may now be released."""

    dataset: str
    sequence: int
    hash: str
    time: str
    principal: str
    by: str | None = None
    """Who asked on the principal's behalf."""
    shard: int | None = None
    """Which shard keeps the units."""
    replayed: bool
    """This key was charged before, for the same: nothing was charged again."""
    charges: list[ChargeReply]
    loss: LossReply
    notes: list[str] | None = None
    """What the caller should know of how this is charged; left out when there is nothing."""
    left: list[LeftReply]


class Refusal(Reply):
    """Why one budget refuses, in its own parameter."""

    budget: str
    scope: str
    window: str | None
    renews: str | None
    kind: str
    limit: float
    spent: float | None
    asked: float | None
    after: float | None
    short_by: float | None
    order: float | None
    reason: str


class WouldFit(Reply):
    """A smaller charge that would fit."""

    largest_count: int | None
    least_noise: dict[str, Any] | None
    leading_items: int | None


class CheckReply(Reply):
    """A dry run: nothing was charged."""

    fits: bool
    left: list[LeftReply]
    refusals: list[Refusal]
    would_fit: WouldFit
    notes: list[str] | None = None
    """What the caller should know of how this is charged; left out when there is nothing."""


class ChargesReply(Reply):
    """The charges to make, hold or check; none for an event without a loss."""

    charges: list[ChargeReply]
    notes: list[str] | None = None
    """What of it loses nothing, such as an event that runs 0 times; left out when there is nothing to say."""
