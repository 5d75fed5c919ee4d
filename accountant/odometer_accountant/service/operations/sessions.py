"""The operations of sessions: interactive mechanisms, charged as their public answers come."""

from collections.abc import Mapping
from typing import Any, Final

from odometer_accountant import errors
from odometer_accountant.requests.bodies import OpenSession, SessionAnswer
from odometer_accountant.requests.json_input import validated
from odometer_accountant.service.operations.operation import (
    CHARGE_ERRORS,
    KEY_PATTERN,
    KEYED,
    ON_DATASET,
    Again,
    Call,
    Header,
    Nothing,
    Operation,
    again,
    charger,
    read,
)
from odometer_accountant.service.responses.sessions import AnswerReply, SessionReply, SessionsReply

_ON_SESSION: Final = ("dataset", "session")
_ANSWER_KEY: Final = {
    "Idempotency-Key": Header(
        "1 to 128 printable ASCII characters: new for a new answer, the same for a retry. A free answer, "
        "such as below in sparse vector, needs none",
        KEY_PATTERN,
        required=False,
    )
}


def _open(call: Call) -> Mapping[str, Any] | Again:
    return again(*call.accountant.open_session(call.dataset, call.body, call.key, call.who.caller))


def _answer(call: Call) -> dict[str, Any]:
    session = call.names["session"]
    return call.accountant.answer_session(call.dataset, session, call.body, call.key, call.who.caller)[0]


def _close(call: Call) -> dict[str, Any]:
    call.accountant.state(call.dataset)  # 404 comes before 422
    validated(Nothing, call.body)
    return call.accountant.close_session(call.dataset, call.names["session"], call.who.caller)[0]


ROWS: Final[tuple[Operation, ...]] = (
    charger(
        "open_session",
        "Open an interactive mechanism, such as sparse vector: it is charged as its public answers come",
        _open,
        AnswerReply,
        names=ON_DATASET,
        body=OpenSession,
        headers=KEYED,
        status=201,
        refuses=(*CHARGE_ERRORS, errors.TooManySessions),
        repeat="with key",
        computes=True,
        charges=True,
        counted="session",
    ),
    read(
        "sessions",
        "List the sessions that take answers",
        lambda call: call.accountant.sessions(call.dataset),
        SessionsReply,
        names=ON_DATASET,
    ),
    read(
        "session",
        "Show a session, open or closed",
        lambda call: call.accountant.session(call.dataset, call.names["session"]),
        SessionReply,
        names=_ON_SESSION,
        refuses=(errors.UnknownSession,),
    ),
    charger(
        "answer_session",
        "Charge the step after a public answer, before the answer goes out; below is free in sparse vector",
        _answer,
        AnswerReply,
        names=_ON_SESSION,
        body=SessionAnswer,
        headers=_ANSWER_KEY,
        refuses=(*CHARGE_ERRORS, errors.UnknownSession, errors.SessionClosed, errors.SessionMovedOn),
        repeat="with key",
        counted="answer",
    ),
    charger(
        "close_session",
        "Close a session: it takes no more answers, and its charges stay",
        _close,
        AnswerReply,
        names=_ON_SESSION,
        body=Nothing,
        refuses=(errors.UnknownSession, errors.Overloaded),
        repeat="once",
        counted="close",
    ),
)
