"""The operations of holds: charge ahead of the work, settle afterwards."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter

from odometer_accountant import errors
from odometer_accountant.requests.bodies import ManyHolds, OneHold, Settlement
from odometer_accountant.service.operations.operation import (
    CHARGE_ERRORS,
    KEYED,
    ON_DATASET,
    Again,
    Call,
    Operation,
    again,
    charger,
    read,
)
from odometer_accountant.service.responses.holds import HoldReceipt, HoldsReply, SettlementReply

HOLDS: Final[TypeAdapter[Any]] = TypeAdapter(OneHold | ManyHolds)


def _hold(call: Call) -> Mapping[str, Any] | Again:
    return again(*call.accountant.hold(call.dataset, call.body, call.key, call.who.caller))


def _settle(call: Call) -> dict[str, Any]:
    return call.accountant.settle(call.dataset, call.names["hold"], call.body, call.who.caller)[0]


ROWS: Final[tuple[Operation, ...]] = (
    charger(
        "hold",
        "Charge ahead of the work: spent for good, unless it is settled in time for what was used",
        _hold,
        HoldReceipt,
        names=ON_DATASET,
        body=HOLDS,
        headers=KEYED,
        status=201,
        refuses=(*CHARGE_ERRORS, errors.HoldSettled, errors.TooManyHolds),
        repeat="with key",
        computes=True,
        charges=True,
        counted="hold",
    ),
    read(
        "holds",
        "List the holds that can still be settled",
        lambda call: call.accountant.holds(call.dataset),
        HoldsReply,
        names=ON_DATASET,
    ),
    charger(
        "settle",
        "Settle a hold for what was used of it: once, by its maker or an admin, before it expires",
        _settle,
        SettlementReply,
        names=("dataset", "hold"),
        body=Settlement,
        refuses=(errors.UnknownHold, errors.HoldSettled, errors.HoldExpired, errors.Overloaded),
        repeat="once",
        computes=True,
        counted="settlement",
    ),
)
