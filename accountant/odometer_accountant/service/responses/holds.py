"""Holds and their settlements."""

from typing import Any

from odometer_accountant.service.responses.base import Reply
from odometer_accountant.service.responses.charges import ChargeReply, LeftReply, LossReply, Receipt


class Hold(Reply):
    """How a hold is called, and until when it can be settled."""

    id: str
    expires: str


class HoldReceipt(Receipt):
    """The hold is durable: up to so much may now be released."""

    hold: Hold


class OpenHold(Reply):
    """A hold that can still be settled."""

    id: str
    principal: str
    by: str | None
    team: str | None
    group: dict[str, Any] | None
    time: str
    expires: str
    charges: list[ChargeReply]
    loss: LossReply


class HoldsReply(Reply):
    """The open holds, oldest first."""

    items: list[OpenHold]
    next: None


class SettlementReply(Reply):
    """A hold is charged for what was used of it, once and for all."""

    dataset: str
    hold: str
    sequence: int
    hash: str
    used: list[int]
    held: list[int]
    replayed: bool
    """It was settled before, for the same."""
    left: list[LeftReply]
