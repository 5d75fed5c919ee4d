"""The operations that touch no dataset: kinds of mechanisms, and what a plan would cost."""

from typing import Final

from odometer_accountant import errors
from odometer_accountant.queries.convert import ConvertRequest
from odometer_accountant.requests.dp_events import DpEvents
from odometer_accountant.service.operations.operation import Operation, read
from odometer_accountant.service.responses.charges import ChargesReply
from odometer_accountant.service.responses.mechanisms import MechanismsReply
from odometer_accountant.service.responses.readings import ConvertReply

ROWS: Final[tuple[Operation, ...]] = (
    read(
        "mechanisms",
        "List every kind of mechanism",
        lambda call: call.accountant.mechanisms(),
        MechanismsReply,
    ),
    read(
        "convert",
        "Compute what charges would cost as a plan fixed in advance; touches no dataset",
        lambda call: call.accountant.convert(call.body),
        ConvertReply,
        body=ConvertRequest,
        refuses=(errors.NotValidUnderAdjacency,),
        computes=True,
    ),
    read(
        "dp_events",
        "Convert a plan of the library dp_accounting to charges; touches no dataset",
        lambda call: call.accountant.dp_events(call.body),
        ChargesReply,
        body=DpEvents,
        computes=True,
    ),
)
