"""A ledger that lost what several processes had seen: frozen for all, until any of them is told to go on."""

import copy
import json
from collections.abc import Iterator

import pytest

from odometer_accountant.errors import (
    LedgerRolledBack,
    NotFrozen,
    OdometerError,
    SessionClosed,
    UnknownHold,
)
from odometer_accountant.ledger.commands import Caller, ChargeCommand, EndCommand
from odometer_accountant.ledger.decisions import Refused
from odometer_accountant.requests.bodies import SessionAnswer
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores.memory import MemoryStore

ONE = {"mechanism": {"kind": "gaussian", "noise_multiplier": 1.0}, "count": 1}
DATASET = {
    "name": "d",
    "unit": "person",
    "adjacency": "add_remove",
    "delta": 1e-6,
    "budgets": [{"name": "life", "kind": "zcdp", "rho": 100.0}],
}


SVT = {"kind": "sparse_vector", "epsilon_threshold": 0.1, "epsilon_answers": 0.2}


class Processes:
    """Two services on one store whose history is rolled back on demand. Neither looks by itself."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.one, self.other = Accountant(self.store), Accountant(self.store)
        for each in (self.one, self.other):
            each.rollback_monitor.close()
        self.one.create_dataset(DATASET, "admin")
        self.charge(self.one, "kept")

    def charge(self, at: Accountant, key: str) -> int:
        return int(at.charge("d", ONE, key, "caller")[0]["sequence"])

    def hold(self, key: str) -> str:
        return str(self.one.hold("d", {**ONE, "expires_in_s": 60}, key, "caller")[0]["hold"]["id"])

    def session(self, key: str, most: int) -> str:
        body = {"session": {**SVT, "max_above": most}}
        return str(self.one.open_session("d", body, key, "caller")[0]["session"]["id"])

    def answer(self, session: str, above: bool, key: str) -> str:
        try:
            self.one.answer_session("d", session, {"above": above}, key, "caller")
        except OdometerError as error:
            return error.code
        return "done"

    def refuse(self, *some: Accountant) -> None:
        for place, each in enumerate(some):
            with pytest.raises(LedgerRolledBack):
                self.charge(each, f"while-frozen-{place}")

    def types(self) -> list[str]:
        return [json.loads(row.body)["type"] for row in self.store.entries("d", 0, 100)]


@pytest.fixture
def both() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.one.close()
    made.other.close()


@pytest.mark.parametrize("through", ["one", "other"])
def test_either_process_that_saw_what_is_lost_can_be_told_to_go_on(both: Processes, through: str) -> None:
    kept = copy.deepcopy(both.store._streams)
    lost = both.charge(both.one, "lost")
    assert both.charge(both.other, "lost") == lost
    both.store._streams = kept
    both.refuse(both.one, both.other)
    getattr(both, through).unfreeze("d", {"reason": "the lost charge is written off"}, "admin")
    assert both.charge(both.other, "after") < both.charge(both.one, "after-that")
    assert both.types() == ["opened", "charged", "frozen", "unfrozen", "charged", "charged"]


def test_a_lost_hold_is_not_settled_in_place_of_the_one_that_has_its_number_now(both: Processes) -> None:
    kept = copy.deepcopy(both.store._streams)
    lost = [both.hold(key) for key in ("h1", "h2", "h3", "h4")]
    both.store._streams = kept
    for hold in lost[::3]:  # below and above what the ledger has once it is frozen
        with pytest.raises(LedgerRolledBack):
            both.one.settle("d", hold, {"used": 0}, "caller")
    both.refuse(both.one)
    with pytest.raises(LedgerRolledBack):
        both.other.settle("d", lost[0], {"used": 0}, "caller")
    both.one.unfreeze("d", {"reason": "written off"}, "admin")
    new = both.hold("h5")
    same = next(hold for hold in lost if hold.partition(".")[0] == new.partition(".")[0])
    with pytest.raises(UnknownHold):
        both.one.settle("d", same, {"used": 0}, "caller")
    assert both.one.settle("d", new, {"used": 1}, "caller")[0]["used"] == [1]


@pytest.mark.parametrize("through", ["one", "other"])
def test_once_told_is_enough_for_a_process_that_saw_more_of_what_is_lost(
    both: Processes, through: str
) -> None:
    kept = copy.deepcopy(both.store._streams)
    both.charge(both.one, "lost")
    both.charge(both.other, "lost-too")
    both.store._streams = kept
    both.refuse(both.one, both.other)
    getattr(both, through).unfreeze("d", {"reason": "both are written off"}, "admin")
    both.charge(both.one, "after")
    both.charge(both.other, "after-that")
    with pytest.raises(NotFrozen):
        both.one.unfreeze("d", {"reason": "again"}, "admin")
    assert both.types() == ["opened", "charged", "frozen", "frozen", "unfrozen", "charged", "charged"]


@pytest.mark.parametrize("most", [1, 3])
def test_a_session_that_may_have_lost_answers_takes_no_more_of_them(both: Processes, most: int) -> None:
    """Its above answer went out, and is lost with the run it paid or the session's end: not once more."""
    before = both.session("before", most)
    kept = copy.deepcopy(both.store._streams)
    assert both.answer(before, True, "a1") == "done"
    both.store._streams = kept
    assert both.answer(before, True, "a1") == "ledger-rolled-back"
    both.refuse(both.one)
    both.one.unfreeze("d", {"reason": "written off"}, "admin")
    assert [both.answer(before, *more) for more in ((False, "b1"), (True, "a1"), (True, "a2"))] == [
        "session-closed"
    ] * 3
    assert not both.one.close_session("d", before, "caller")[0]["session"]["open"]
    after = both.session("after", 1)
    assert [both.answer(after, *more) for more in ((False, "b1"), (True, "a1"))] == ["done"] * 2


@pytest.mark.parametrize("last", [True, False])
def test_nothing_is_decided_for_a_session_that_may_have_lost_answers(both: Processes, last: bool) -> None:
    """Also for who has read the dataset before it froze: the decision itself refuses."""
    session = both.session("before", 1 if last else 3)
    kept = copy.deepcopy(both.store._streams)
    state, known = both.one._session("d", session)
    command = known.answer(both.store, state, SessionAnswer(above=True), "a1", Caller("caller"))
    both.charge(both.one, "lost")
    both.store._streams = kept
    both.refuse(both.one)
    both.one.unfreeze("d", {"reason": "written off"}, "admin")
    assert isinstance(command, EndCommand if last else ChargeCommand)
    outcome = both.one._wait("d", command)
    assert isinstance(outcome, Refused)
    assert isinstance(outcome.error, SessionClosed)
