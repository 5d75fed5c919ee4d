"""A model predicts every reply of sessions: random answers, retries, refusals, other processes."""

import contextlib
import json
import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from odometer_accountant.errors import OdometerError
from odometer_accountant.ledger.commands import ChargeCommand, EndCommand, OpenCommand
from odometer_accountant.ledger.decide import decide
from odometer_accountant.ledger.decisions import Admitted
from odometer_accountant.ledger.entries import MARK, canonical, timestamp
from odometer_accountant.ledger.fold import fold
from odometer_accountant.ledger.session_state import Answer, SessionState, dump, load
from odometer_accountant.model import floats_to_text
from odometer_accountant.requests.bodies import CreateDataset
from odometer_accountant.service import sessions
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import open_store
from odometer_accountant.verify.walk import verify

NOW = timestamp(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
RUN_MILLI = 300
SVT = {"kind": "sparse_vector", "epsilon_threshold": 0.1, "epsilon_answers": 0.2}
PATE_LIKE = {"kind": "confident_gnmax", "noise_multiplier_check": 10.0, "noise_multiplier_answer": 10.0}
CHECK_MILLI = 5  # rho of a check, and of an answer, in thousandths


@dataclass
class Model:
    """What a session is, in ten lines: which run, how many above, what each step costs."""

    most: int
    sparse: bool
    run: int = 1
    above: int = 0
    open: bool = True
    paid: dict[str, tuple[bool, int]] = field(default_factory=dict)
    """What was acknowledged, by key: the answer, and the run that it ended."""

    def cost(self, above: bool) -> int:
        last = above and self.above + 1 == self.most
        if self.sparse:
            return RUN_MILLI if above and not last else 0
        return CHECK_MILLI * ((1 if above else 0) + (0 if last else 1))

    def predicted(self, above: bool, key: str | None, left: int) -> str:
        free = self.sparse and not above
        if not free and key in self.paid:
            return "replayed" if self.paid[key][0] == above else "key-reused"
        if not self.open:
            return "session-closed"
        if self.cost(above) > left:
            return "budget-exceeded"
        return "done"

    def does(self, above: bool, key: str | None) -> int:
        """Take the answer; what it costs."""
        cost = self.cost(above)
        if self.sparse and not above:
            return 0
        self.paid[key or ""] = above, self.run
        self.run, self.above = self.run + 1, self.above + above
        self.open = self.above < self.most
        return cost


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse_vector", "confident_gnmax"])
@pytest.mark.parametrize("stored", ["memory", "sqlite"])
@pytest.mark.parametrize("seed", range(6))
def test_every_reply_is_predicted(seed: int, stored: str, sparse: bool, tmp_path: Path) -> None:
    dice = random.Random(seed)
    url = "memory://" if stored == "memory" else f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    most, total = dice.randint(1, 5), dice.choice([2, 4, 8])
    step = RUN_MILLI if sparse else CHECK_MILLI
    limit = total * step
    kind = {**SVT, "max_above": most} if sparse else {**PATE_LIKE, "max_answers": most}
    budget = {"kind": "pure", "epsilon": limit / 1000} if sparse else {"kind": "zcdp", "rho": limit / 1000}
    notion = "pure" if sparse else "rho"
    with contextlib.ExitStack() as stack:
        accountant = stack.enter_context(Accountant(open_store(url)))
        document = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-6}
        accountant.create_dataset({**document, "budgets": [{"name": "life", **budget}]}, "root")
        one = accountant.open_session("d", {"session": kind}, "open", "ada")[0]["session"]["id"]
        model, spent, keys = Model(most, sparse), step, ["k0"]
        for number in range(60):
            above = dice.random() < 0.35
            free = sparse and not above
            key = None if free else dice.choice([*keys[-3:], f"k{number}"])
            expected = model.predicted(above, key, limit - spent)
            assert asked(accountant, one, above, key) == expected, (number, above, key)
            if expected == "done":
                spent += model.does(above, key)
            if key is not None:
                keys.append(key)
            if stored == "sqlite" and dice.random() < 0.1:  # another process, and it begins from the store
                accountant = stack.enter_context(Accountant(open_store(url)))
            if dice.random() < 0.1:
                asked(accountant, one, above, f"mine{number}", by="ben")
            shown = accountant.session("d", one)
            assert (shown["open"], shown["run"]) == (model.open, model.run if model.open else None)
            assert accountant.odometer("d")["totals"][notion] * 1000 == pytest.approx(spent)
        assert not [finding for verdict in verify(accountant.store) for finding in verdict.findings]


def asked(accountant: Accountant, one: str, above: bool, key: str | None, **who: Any) -> str:
    try:
        _, replayed = accountant.answer_session("d", one, {"above": above}, key, who.get("by", "ada"))
    except OdometerError as error:
        return error.code
    return "replayed" if replayed else "done"


def test_a_decision_on_a_session_is_pure_and_what_it_writes_folds_to_its_state() -> None:
    """Opening, paying and free steps: the same twice, canonical bytes, and the state that was given stays."""
    document = {
        "name": "d",
        "unit": "person",
        "adjacency": "add_remove",
        "delta": 1e-6,
        "odometer_only": True,
    }
    first = decide(None, OpenCommand(CreateDataset.model_validate(document), "root"), None, NOW)
    assert isinstance(first, Admitted)
    state, rows = first.state, [(first.entry.hash, first.entry.body)]
    prepared = sessions.prepared_opening({"session": {**SVT, "max_above": 2}})
    commands: list[Any] = [ChargeCommand(prepared, "ada", "open")]
    for step in range(3):
        before = state.config(), dict(state.sessions), state.totals
        one, other = (decide(state, commands[step], None, NOW) for _ in range(2))
        assert isinstance(one, Admitted)
        assert isinstance(other, Admitted)
        assert (one.entry, dict(one.state.sessions)) == (other.entry, dict(other.state.sessions))
        assert (state.config(), dict(state.sessions), state.totals) == before
        assert canonical(json.loads(one.entry.body)) == one.entry.body
        state = one.state
        rows.append((one.entry.hash, one.entry.body))
        if step == 0:
            mark = state.head.hash[:MARK]
            answer = Answer(2, mark, above=True, run=1, last=False, principal="ada")
            commands.append(ChargeCommand(replace(prepared, session=answer), "ada", "a1"))
            commands.append(EndCommand(2, mark, "ada", run=2, key="a2"))
    folded = fold(rows)
    assert folded is not None
    assert (dict(folded.sessions), folded.totals.life) == ({}, state.totals.life)
    middle = fold(rows[:3])
    assert middle is not None
    assert dict(middle.sessions) == {
        2: SessionState({**floats_to_text(SVT), "max_above": 2}, "ada", mark, 1, 2)
    }
    assert load(canonical(dump(middle.sessions))) == middle.sessions
