"""The operations of charges: charge now, and ask first whether it would fit."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter

from odometer_accountant import errors
from odometer_accountant.requests.bodies import ManyCharges, OneCharge
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
from odometer_accountant.service.responses.charges import CheckReply, Receipt

CHARGES: Final[TypeAdapter[Any]] = TypeAdapter(OneCharge | ManyCharges)


def _charge(call: Call) -> Mapping[str, Any] | Again:
    return again(*call.accountant.charge(call.dataset, call.body, call.key, call.who.caller))


ROWS: Final[tuple[Operation, ...]] = (
    charger(
        "charge",  # over HTTP a faster route of its own answers it
        "Charge a dataset before anything is released: one mechanism, or a list, all or nothing",
        _charge,
        Receipt,
        names=ON_DATASET,
        body=CHARGES,
        headers=KEYED,
        status=201,
        refuses=CHARGE_ERRORS,
        repeat="with key",
        computes=True,
        charges=True,
        counted="charge",
    ),
    read(
        "check",
        "Dry run: would it fit, what would be left, and the largest charge that fits",
        lambda call: call.accountant.check(call.dataset, call.body, call.who.caller),
        CheckReply,
        names=ON_DATASET,
        body=CHARGES,
        refuses=(errors.NotValidUnderAdjacency, errors.SeveralShards, errors.Forbidden),
        computes=True,
        counted="check",
    ),
)
