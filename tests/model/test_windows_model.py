"""Budgets by window against an oracle that keeps intervals: what is open counts in every window it reaches.

The oracle knows when each charge began and until when it may have released, and adds up thousandths of ε.
"""

import os
import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from auditor import start_of

from odometer_accountant.errors import BudgetExceeded, HoldExpired
from odometer_accountant.ledger.commands import Caller
from odometer_accountant.ledger.entries import timestamp
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import open_store
from odometer_accountant.verify.walk import verify

SEEDS = 4 * int(os.environ.get("MODEL_EXAMPLES", "1"))
RUN = 300
"""What a run of the sparse vector costs, in thousandths of ε."""
SESSION = {"kind": "sparse_vector", "epsilon_threshold": 0.1, "epsilon_answers": 0.2, "max_above": 4}
PEOPLE = {"ada": Caller("ada", "red"), "ben": Caller("ben")}
LATEST = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass
class Spent:
    """One charge: how much, whose, and from when until when it may have released something."""

    milli: int
    scopes: set[str]
    start: datetime
    end: datetime


@dataclass
class Oracle:
    """What was admitted, and the budgets: (scope, window, limit in thousandths, counted since, set at)."""

    spent: list[Spent] = field(default_factory=list)
    budgets: dict[str, tuple[str, str, int, datetime, datetime]] = field(default_factory=dict)

    def counted(
        self, scope: str, window: str, since: datetime, now: datetime, *, open_before: bool = True
    ) -> int:
        """In the window of `now`: what began since, or was open then, and reaches it."""
        here = start_of(window, timestamp(now))

        def reaches(one: Spent) -> bool:
            first, last = (start_of(window, timestamp(moment)) for moment in (one.start, one.end))
            return first <= here <= last and (one.start > since or (open_before and one.end >= since))

        return sum(one.milli for one in self.spent if scope in one.scopes and reaches(one))

    def allows(self, milli: int, scopes: set[str], now: datetime) -> bool:
        return all(
            self.counted(scope, window, since, now) + milli <= limit
            for scope, window, limit, since, _ in self.budgets.values()
            if scope in scopes
        )

    def broken(self, last: datetime) -> list[str]:
        """Budgets whose promise did not hold in some window of the past."""
        wrong = []
        for name, (scope, window, limit, _, made) in self.budgets.items():
            moment = start_of(window, timestamp(made))
            while moment <= last:
                if self.counted(scope, window, made, moment, open_before=False) > limit:
                    wrong.append(f"{name} in the {window} of {moment}")
                moment += timedelta(hours=1)
        return wrong


class World:
    """A service on a store, which now and then begins anew, and the oracle beside it."""

    def __init__(self, seed: int, url: str, stack: ExitStack) -> None:
        self.dice, self.oracle, self.now = (
            random.Random(seed),
            Oracle(),
            datetime(2026, 11, 29, 20, tzinfo=UTC),
        )
        self.holds: dict[str, tuple[Spent, int]] = {}
        self.sessions: dict[str, tuple[list[Spent], str]] = {}
        self.stack, self.url, self.number = stack, url, 0
        self.begin()
        life = {"name": "life", "kind": "pure", "epsilon": 1e5}
        document = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-6}
        self.accountant.create_dataset({**document, "budgets": [life]}, "root")
        self.budget()

    def begin(self) -> None:
        self.accountant = self.stack.enter_context(
            Accountant(open_store(self.url), lambda: timestamp(self.now))
        )

    def key(self) -> str:
        self.number += 1
        return f"k{self.number}"

    def tried(self, milli: int, who: str, call: Callable[[], Any]) -> Any:
        """What the oracle says is what happens."""
        scopes = self.scopes(who)
        fits = self.oracle.allows(milli, scopes, self.now)
        try:
            done = call()
        except BudgetExceeded:
            assert not fits, (milli, who, self.now)
            return None
        assert fits, (milli, who, self.now)
        return done

    def scopes(self, who: str) -> set[str]:
        team = PEOPLE[who].team
        return {"dataset", f"principal/{who}"} | ({f"team/{team}"} if team else set())

    def someone(self) -> tuple[str, Caller]:
        who = self.dice.choice(list(PEOPLE))
        return who, PEOPLE[who]

    # -- what happens

    def budget(self) -> None:
        self.now += timedelta(microseconds=1)  # so that time alone tells what came before
        name, window = f"b{len(self.oracle.budgets)}", self.dice.choice(["hour", "day", "week", "month"])
        scope, limit = (
            self.dice.choice(["dataset", "principal/ada", "team/red"]),
            self.dice.randint(5, 30) * 100,
        )
        budget = {"name": name, "kind": "pure", "epsilon": limit / 1000, "window": window, "scope": scope}
        known = [(one, since) for one, kind, _, since, _ in self.oracle.budgets.values() if kind == window]
        kind = scope.partition("/")[0]
        since = next((since for one, since in known if one.partition("/")[0] == kind), self.now)
        self.accountant.add_budget("d", budget, "root")
        self.oracle.budgets[name] = (scope, window, limit, since, self.now)
        self.now += timedelta(microseconds=1)

    def charge(self) -> None:
        who, caller = self.someone()
        milli = self.dice.choice([100, 300, 500, 1000])
        body = {"mechanism": {"kind": "pure", "epsilon": milli / 1000}, "count": 1}
        if self.tried(milli, who, lambda: self.accountant.charge("d", body, self.key(), caller)):
            self.oracle.spent.append(Spent(milli, self.scopes(who), self.now, self.now))

    def hold(self) -> None:
        who, caller = self.someone()
        count, seconds = self.dice.randint(1, 8), self.dice.choice([60, 3600, 7200, 90_000, 700_000])
        body = {"mechanism": {"kind": "pure", "epsilon": 0.1}, "count": count, "expires_in_s": seconds}
        done = self.tried(100 * count, who, lambda: self.accountant.hold("d", body, self.key(), caller))
        if done:
            spent = Spent(100 * count, self.scopes(who), self.now, self.now + timedelta(seconds=seconds))
            self.oracle.spent.append(spent)
            self.holds[done[0]["hold"]["id"]] = spent, count

    def settle(self) -> None:
        if not self.holds:
            return
        one = self.dice.choice(list(self.holds))
        spent, count = self.holds.pop(one)
        used = self.dice.randint(0, count)
        root = Caller("root", admin=True)
        if spent.end < self.now:
            with pytest.raises(HoldExpired):
                self.accountant.settle("d", one, {"used": used}, root)
            return
        self.accountant.settle("d", one, {"used": used}, root)
        spent.milli, spent.end = 100 * used, self.now

    def open_session(self) -> None:
        who, caller = self.someone()
        body = {"session": SESSION}
        done = self.tried(RUN, who, lambda: self.accountant.open_session("d", body, self.key(), caller))
        if done:
            spent = Spent(RUN, self.scopes(who), self.now, LATEST)
            self.oracle.spent.append(spent)
            self.sessions[done[0]["session"]["id"]] = [spent], who

    def answer(self) -> None:
        if not self.sessions:
            return
        one = self.dice.choice(list(self.sessions))
        paid, who = self.sessions[one]
        last = len(paid) == SESSION["max_above"]
        answer, root = {"above": True, "run": len(paid)}, Caller("root", admin=True)
        call = lambda: self.accountant.answer_session("d", one, answer, self.key(), root)  # noqa: E731
        if last:
            call()
            self.ended(one)
        elif self.tried(RUN, who, call):
            paid.append(Spent(RUN, self.scopes(who), self.now, LATEST))
            self.oracle.spent.append(paid[-1])

    def close(self) -> None:
        if self.sessions:
            one = self.dice.choice(list(self.sessions))
            self.accountant.close_session("d", one, Caller("root", admin=True))
            self.ended(one)

    def ended(self, one: str) -> None:
        for spent in self.sessions.pop(one)[0]:
            spent.end = self.now

    def later(self) -> None:
        self.now += timedelta(seconds=self.dice.choice([1, 1800, 3600, 20_000, 86_400, 400_000]))


@pytest.mark.parametrize("stored", ["memory", "sqlite"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_window_has_more_than_its_limit_and_what_fits_is_admitted(
    seed: int, stored: str, tmp_path: Path
) -> None:
    url = "memory://" if stored == "memory" else f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    with ExitStack() as stack:
        world = World(seed, url, stack)
        steps = [world.charge, world.hold, world.settle, world.open_session, world.answer, world.close]
        for _ in range(120):
            world.dice.choice([*steps, world.charge, world.hold, world.later, world.later])()
            if len(world.oracle.budgets) < 4 and world.dice.random() < 0.04:
                world.budget()
            if stored == "sqlite" and world.dice.random() < 0.1:  # another process begins from the store
                world.begin()
        assert world.oracle.broken(world.now) == []
        assert [finding for verdict in verify(world.accountant.store) for finding in verdict.findings] == []
