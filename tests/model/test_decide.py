"""The decision is a pure function, and what it writes by hand is what `canonical` would write."""

import builtins
import json
import os
import re
import socket
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from odometer_accountant.budgets import ANY_BUDGET
from odometer_accountant.errors import LedgerCorrupt
from odometer_accountant.ledger.checkpoints import CHECKPOINT_EVERY
from odometer_accountant.ledger.commands import (
    ChargeCommand,
    CloseCommand,
    Command,
    OpenCommand,
    SetBudgetCommand,
)
from odometer_accountant.ledger.decide import decide
from odometer_accountant.ledger.decisions import Admitted, Refused, Replayed
from odometer_accountant.ledger.entries import canonical, entry_hash, timestamp
from odometer_accountant.ledger.fold import fold
from odometer_accountant.ledger.prepared import prepare
from odometer_accountant.ledger.state import State
from odometer_accountant.mechanisms import Mechanism
from odometer_accountant.requests.bodies import CreateDataset
from odometer_accountant.scopes import DATASET_SCOPE
from odometer_accountant.stores import Row

NOW = timestamp(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
BUDGETS = (
    {"name": "z", "kind": "zcdp", "rho": 10.0},
    {"name": "a", "kind": "approximate", "epsilon": 3.0, "delta": 1e-6},
)


def opening(**more: Any) -> OpenCommand:
    document = {"name": "d", "unit": "person", "adjacency": "replace_one", "delta": 1e-6, "budgets": BUDGETS}
    return OpenCommand(CreateDataset.model_validate({**document, **more}), "p")


def charging(key: str, *mechanisms: dict[str, Any], count: int = 1, principal: str = "p") -> ChargeCommand:
    body = {"charges": [{"mechanism": mechanism, "count": count} for mechanism in mechanisms]}
    return ChargeCommand(prepare(json.dumps(body).encode(), body), principal, key)


def opened(**more: Any) -> State:
    decision = decide(None, opening(**more), None, NOW)
    assert isinstance(decision, Admitted)
    return decision.state


GAUSSIAN = {"kind": "gaussian", "noise_multiplier": 20.0}
COMMANDS: list[tuple[str, Command, type]] = [
    ("a charge", charging("k", GAUSSIAN), Admitted),
    ("a list", charging("k", GAUSSIAN, {"kind": "pure", "epsilon": 0.1}), Admitted),
    ("an over-ask", charging("k", GAUSSIAN, count=10**6), Refused),
    ("a budget", SetBudgetCommand(ANY_BUDGET.validate_python({**BUDGETS[0], "name": "n"}), "p"), Admitted),
    ("an edit", SetBudgetCommand(ANY_BUDGET.validate_python(BUDGETS[1]), "p", '"v1"'), Admitted),
    ("a stale edit", SetBudgetCommand(ANY_BUDGET.validate_python(BUDGETS[1]), "p", '"v0"'), Refused),
    ("closing", CloseCommand("p"), Admitted),
    ("opening again", opening(), Refused),
]


def forbidden(*_: Any, **__: Any) -> Any:
    raise AssertionError("a decision looked at the world")


@pytest.mark.parametrize(("command", "outcome"), [c[1:] for c in COMMANDS], ids=[c[0] for c in COMMANDS])
def test_it_looks_at_nothing_but_its_arguments(
    monkeypatch: pytest.MonkeyPatch, command: Command, outcome: type
) -> None:
    """No clock, no file, no socket; the same twice; the state that was given is as it was."""
    state = opened()
    before = state.config(), state.head, state.totals
    for module, names in (
        (time, ("time", "time_ns", "monotonic", "perf_counter", "sleep")),
        (builtins, ("open", "input")),
        (os, ("open", "urandom", "getenv")),
        (socket, ("socket", "create_connection")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, forbidden)
    first, second = decide(state, command, None, NOW), decide(state, command, None, NOW)
    monkeypatch.undo()
    assert isinstance(first, outcome)
    assert (state.config(), state.head, state.totals) == before
    if isinstance(first, Admitted) and isinstance(second, Admitted):
        assert first.entry == second.entry
        assert first.state.config() == second.state.config()
        assert first.state.totals == second.state.totals
    elif isinstance(first, Refused) and isinstance(second, Refused):
        assert first.error.problem() == second.error.problem()


def test_a_replay_is_told_from_the_entry_alone() -> None:
    state = opened()
    done = decide(state, charging("k", GAUSSIAN), None, NOW)
    assert isinstance(done, Admitted)
    row = Row(done.state.head.sequence, done.entry.hash, done.entry.body)
    again = decide(done.state, charging("k", GAUSSIAN), row, NOW)
    assert isinstance(again, Replayed)
    assert again.row == row


EVERY_EXAMPLE = [example for kind in Mechanism.registry.values() for example in kind.examples]


@pytest.mark.parametrize("key", ["k", '"\\/', "~" * 128], ids=["plain", "quotes", "long"])
def test_hot_path_bytes_are_canonical(key: str) -> None:
    """Every mechanism's example in a list, and keys that JSON has to escape."""
    state = opened(adjacency="add_remove", budgets=(), odometer_only=True)
    allowed = [e for e in EVERY_EXAMPLE if "add_remove" in Mechanism.registry[e["kind"]].adjacencies]
    for charges in (allowed, allowed[:1]):
        done = decide(state, charging(key, *charges, principal="ada:7.x_y-z"), None, NOW)
        assert isinstance(done, Admitted)
        assert canonical(json.loads(done.entry.body)) == done.entry.body
        assert entry_hash(done.entry.body) == done.entry.hash == done.state.head.hash


def chain(length: int) -> tuple[State, list[tuple[str, bytes]]]:
    first = decide(None, opening(), None, NOW)
    assert isinstance(first, Admitted)
    state, rows = first.state, [(first.entry.hash, first.entry.body)]
    for n in range(length - 1):
        done = decide(state, charging(f"k{n}", {"kind": "pure", "epsilon": 1e-6}), None, NOW)
        assert isinstance(done, Admitted)
        state = done.state
        rows.append((done.entry.hash, done.entry.body))
    return state, rows


def test_checkpoints() -> None:
    """Every 128th entry, if a charge, carries the totals up to it; and the fold is the live state."""
    state, rows = chain(2 * CHECKPOINT_EVERY + 3)
    marked = [n for n, (_, body) in enumerate(rows, start=1) if "totals" in json.loads(body)]
    assert marked == [CHECKPOINT_EVERY, 2 * CHECKPOINT_EVERY]
    for n, (_, body) in enumerate(rows, start=1):
        assert canonical(json.loads(body)) == body
        if n in marked:
            folded = fold(rows[:n])
            assert folded is not None
            assert json.loads(body)["totals"] == folded.spent.encode()
    folded = fold(rows)
    assert folded is not None
    assert (folded.head, folded.time, folded.config()) == (state.head, state.time, state.config())
    assert folded.totals == state.totals


def test_a_wrong_checkpoint_is_found() -> None:
    """Though its hash is right: the totals are not those of the entries before it."""
    _, rows = chain(CHECKPOINT_EVERY)
    entry = json.loads(rows[-1][1])
    entry["totals"] = "0" + entry["totals"][1:] if entry["totals"][0] != "0" else "1" + entry["totals"][1:]
    body = canonical(entry)
    with pytest.raises(LedgerCorrupt, match=f"entry {CHECKPOINT_EVERY}.*checkpoint"):
        fold([*rows[:-1], (entry_hash(body), body)])


@pytest.mark.parametrize("place", [0, 1, 5])
@pytest.mark.parametrize("what", ["changed", "left out", "twice"])
def test_a_broken_chain_is_found(place: int, what: str) -> None:
    """A changed byte, a missing entry, a duplicate. (A cut-off end only the head can tell.)"""
    _, rows = chain(9)
    digest, body = rows[place]
    if what == "changed":
        rows[place] = (digest, re.sub(rb'"v":\d', b'"v":9', body))
    elif what == "left out":
        del rows[place]
    else:
        rows.insert(place, rows[place])
    with pytest.raises(LedgerCorrupt):
        fold(rows)


def test_the_scope_of_a_dataset_is_there_from_the_start() -> None:
    assert opened().totals.of(DATASET_SCOPE).is_zero
