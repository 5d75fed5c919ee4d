"""The core without I/O: what an answer means, and when the same request is sent again."""

import pytest

from odometer_client.calls import Answer, Call, Done, Request, TransportFailure, Wait
from odometer_client.errors import (
    BudgetExceeded,
    Forbidden,
    LedgerCorrupt,
    OdometerError,
    OutcomeUnknown,
    ProblemError,
    StoreUnavailable,
    UnexpectedAnswer,
    Unreachable,
)
from odometer_client.operations import Repeat

LOST = TransportFailure("ReadTimeout", may_have_arrived=True)
NOT_SENT = TransportFailure("ConnectError", may_have_arrived=False)


def call(repeat: Repeat = "with key", attempts: int = 3, jitter: float = 1.0) -> Call:
    key = "k1" if repeat == "with key" else None
    request = Request("charge", "POST", "/v1/datasets/d/charges", repeat, key=key)
    return Call(request, attempts, jitter=lambda: jitter)


def problem(code: str, status: int, *, retryable: bool = False, retry_after_s: float | None = None) -> Answer:
    document = {"type": f"/problems/{code}", "status": status, "detail": code, "retryable": retryable}
    return Answer(status, document, retry_after_s)


UNAVAILABLE = problem("store-unavailable", 503, retryable=True)


def test_a_document_ends_the_call() -> None:
    assert call().answered(Answer(201, {"sequence": 1})) == Done({"sequence": 1}, retried=False)


def test_no_content_ends_the_call() -> None:
    assert call().answered(Answer(204)) == Done(None, retried=False)


@pytest.mark.parametrize("lost", [LOST, UNAVAILABLE])
def test_after_a_try_that_may_have_arrived_the_answer_says_so(lost: TransportFailure | Answer) -> None:
    asked = call()
    assert isinstance(
        asked.failed(lost) if isinstance(lost, TransportFailure) else asked.answered(lost), Wait
    )
    assert asked.answered(Answer(200, {"replayed": True})) == Done({"replayed": True}, retried=True)


def test_a_try_that_was_never_sent_is_no_reason_for_a_replay() -> None:
    asked = call()
    asked.failed(NOT_SENT)
    assert asked.answered(Answer(200, {"replayed": True})) == Done({"replayed": True}, retried=False)


def test_waits_double_and_stay_below_their_bound() -> None:
    asked = call(attempts=100)
    waits = [asked.failed(LOST).seconds for _ in range(10)]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, 2.0, 2.0]


def test_jitter_takes_at_most_half_of_a_wait() -> None:
    assert call(jitter=0.0).failed(LOST) == Wait(0.05)


def test_the_services_own_wait_is_kept_within_a_bound() -> None:
    asked = call(attempts=5)
    assert asked.answered(problem("overloaded", 503, retryable=True, retry_after_s=3.0)) == Wait(3.0)
    assert asked.answered(problem("overloaded", 503, retryable=True, retry_after_s=9999.0)) == Wait(10.0)


def test_a_lost_answer_is_unknown_after_the_last_try_and_names_the_key() -> None:
    asked = call(attempts=2)
    asked.failed(LOST)
    with pytest.raises(OutcomeUnknown, match="same key 'k1'") as raised:
        asked.failed(NOT_SENT)
    assert raised.value.key == "k1"


def test_an_unsure_service_leaves_the_outcome_unknown() -> None:
    asked = call(attempts=2)
    asked.answered(UNAVAILABLE)
    with pytest.raises(OutcomeUnknown):
        asked.answered(UNAVAILABLE)


def test_nothing_sent_at_all_is_known() -> None:
    asked = call(attempts=2)
    asked.failed(NOT_SENT)
    with pytest.raises(Unreachable, match="could not be reached") as raised:
        asked.failed(NOT_SENT)
    assert "reached. After 2 tries: " in str(raised.value)
    assert asked.request.operation not in str(raised.value)


def test_a_gateway_page_is_asked_again() -> None:
    assert isinstance(call().answered(Answer(502)), Wait)


@pytest.mark.parametrize("status", [200, 301, 404])
def test_another_page_is_not_the_service(status: int) -> None:
    with pytest.raises(UnexpectedAnswer, match=f"HTTP {status}"):
        call().answered(Answer(status))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (problem("budget-exceeded", 409), BudgetExceeded),
        (problem("forbidden", 403), Forbidden),
        (problem("ledger-corrupt", 503), LedgerCorrupt),
        (problem("of-a-newer-service", 418), ProblemError),
    ],
)
def test_a_refusal_is_raised_at_once(answer: Answer, kind: type[OdometerError]) -> None:
    with pytest.raises(kind) as raised:
        call().answered(answer)
    assert type(raised.value) is kind


def test_what_changes_nothing_may_be_asked_again_and_ends_with_the_services_word() -> None:
    asked = call("safe", attempts=2)
    asked.answered(UNAVAILABLE)
    with pytest.raises(StoreUnavailable):
        asked.answered(UNAVAILABLE)


def test_what_may_not_be_repeated_is_not_sent_again_once_it_may_have_arrived() -> None:
    with pytest.raises(OutcomeUnknown, match="Look whether it took effect"):
        call("never").failed(LOST)
    with pytest.raises(StoreUnavailable):
        call("never").answered(UNAVAILABLE)


def test_what_may_not_be_repeated_is_sent_again_while_it_never_left() -> None:
    assert isinstance(call("never").failed(NOT_SENT), Wait)


def test_the_last_answer_wins_over_an_earlier_loss() -> None:
    asked = call(attempts=2)
    asked.failed(LOST)
    with pytest.raises(BudgetExceeded):
        asked.answered(problem("budget-exceeded", 409))
