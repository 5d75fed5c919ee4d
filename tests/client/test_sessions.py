"""Sessions, against a real service and in this process: what answers pay, and what a retry does."""

from collections.abc import Callable

import pytest

from odometer_client import BudgetExceeded, Client
from odometer_client.errors import SessionClosed, SessionMovedOn, UnknownSession

SVT = {"kind": "sparse_vector", "epsilon_threshold": 0.1, "epsilon_answers": 0.2, "max_above": 2}
Opened = Callable[..., str]


def spent(client: Client, dataset: str) -> float:
    return float(client.dataset(dataset).budgets[0]["spent"])


def test_it_pays_for_runs_and_not_for_answers(both: Client, opened: Opened) -> None:
    dataset = opened()
    session = both.open_session(dataset, SVT)
    assert (session.open, session.above, session.above_left, session.run) == (True, 0, 2, 1)
    for above, cost in ((False, 0.3), (False, 0.3), (True, 0.6), (False, 0.6), (True, 0.6)):
        session.answer(above)
        assert spent(both, dataset) == pytest.approx(cost)
    assert (session.open, session.above_left) == (False, 0)
    with pytest.raises(SessionClosed):
        session.answer(False)


def test_the_same_key_is_the_same_session(both: Client, opened: Opened) -> None:
    dataset = opened()
    first, again = (both.open_session(dataset, SVT, key="k") for _ in range(2))
    assert first.id == again.id
    assert again.receipt is not None
    assert again.receipt.replayed
    assert spent(both, dataset) == 0.3
    again.close()
    with pytest.raises(SessionClosed):
        first.answer(False)


def test_an_answer_to_a_run_that_is_over_is_refused(both: Client, opened: Opened) -> None:
    dataset = opened()
    session = both.open_session(dataset, SVT)
    session.answer(True)
    for above in (True, False):
        with pytest.raises(SessionMovedOn, match="closes it, and opens another one"):
            both.answer_session(dataset, session.id, above=above, run=1, key="another")


def test_a_refusal_leaves_it_open_in_its_run(both: Client, opened: Opened) -> None:
    dataset = opened({"name": "small", "kind": "pure", "epsilon": 0.5})
    session = both.open_session(dataset, SVT)
    with pytest.raises(BudgetExceeded) as refused:
        session.answer(True)
    assert refused.value.refusals[0]["budget"] == "small"
    assert (session.run, session.open) == (1, True)


def test_closed_it_is_listed_no_more(both: Client, opened: Opened) -> None:
    dataset = opened()
    session = both.open_session(dataset, SVT, group="sweep")
    assert [one.id for one in both.sessions(dataset)] == [session.id]
    session.close()
    session.close()
    assert (session.open, both.sessions(dataset)) == (False, [])
    assert not both.session(dataset, session.id).open
    assert both.odometer(dataset, scope="group/sweep")["totals"]["pure"] == 0.3


def test_what_is_no_session_is_unknown(both: Client, opened: Opened) -> None:
    dataset = opened()
    for name in ("1.00000000", "none", "", ".."):
        with pytest.raises(UnknownSession):
            both.session(dataset, name)
