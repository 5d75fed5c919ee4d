"""Principals, keys and names in two processes under a clock that is set back, against plain dictionaries.

The oracle knows rows of who, when and how much, and nothing of streams, caches or hashes. MODEL_EXAMPLES
makes the search longer.
"""

import os
from dataclasses import dataclass, field
from typing import Any

import pytest
from amount import examples
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from odometer_accountant.errors import BudgetExceeded, Forbidden, KeyEnded, NameTaken
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.service.api_keys import KeyRing, Role
from odometer_accountant.stores.memory import MemoryStore

FACTOR = int(os.environ.get("MODEL_EXAMPLES", "1"))
"""How many times as many examples as in a usual run."""
LIMIT = 105
"""What each principal may lose, in hundredths; charges are tens, so that none meets it exactly."""
ROLES = ["reader", "charger", "admin"]
SPELLINGS = {
    "ann": ["ann", "ANN", " ann ", "Ａnn"],
    "zoë": ["zoë", "ZOË", "zoe\u0308"],
    "bo b": ["bo b", "Bo  B"],
}
KEPT = {" ann ": "ann", "zoe\u0308": "zoë", "Bo  B": "Bo B"}
"""How a name is shown, where it is not as it was given."""

which = st.integers(0, 1)
roles = st.sampled_from(ROLES)
teams = st.sampled_from([None, "red", "blue"])
names = st.sampled_from([(same, one) for same, spelt in SPELLINGS.items() for one in spelt])
amounts = st.integers(1, 6).map(lambda tens: 10 * tens)
lives = st.none() | st.integers(1, 40)


@dataclass
class Person:
    role: str
    team: str | None
    name: str | None = None
    spent: int = 0


@dataclass
class Token:
    key: str
    whose: str
    ends: int | None
    dead: bool = False
    rotated: bool = False


@dataclass
class Oracle:
    people: dict[str, Person] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    teams: dict[str, int] = field(default_factory=dict)
    done: dict[tuple[str, str], tuple[dict[str, Any], str]] = field(default_factory=dict)
    now: int = 0
    written: int = 0
    """When something was last written: as far as time cannot go back, whoever starts anew."""

    def kill(self) -> None:
        """What has ended by now has ended for good."""
        for token in self.tokens.values():
            if not token.dead and token.ends is not None and token.ends <= self.now:
                token.dead, self.written = True, self.now

    def lasting(self, *, without: Token | None = None, reader: str | None = None) -> int:
        return sum(
            token is not without
            and not token.dead
            and token.ends is None
            and token.whose != reader
            and self.people[token.whose].role == "admin"
            for token in self.tokens.values()
        )


class PrincipalsMachine(RuleBasedStateMachine):
    tokens = Bundle("tokens")

    @initialize(target=tokens)
    def begin(self) -> str:
        self.store, self.wall, self.number = MemoryStore(), 0, 0
        self.oracle = Oracle()
        self.accountant = Accountant(self.store)
        each = {"name": "each", "kind": "pure", "epsilon": LIMIT / 100, "scope": "principal/*"}
        life = {"name": "life", "kind": "pure", "epsilon": 10_000}
        self.accountant.create_dataset(
            {
                "name": "d",
                "unit": "person",
                "adjacency": "add_remove",
                "delta": 1e-6,
                "budgets": [life, each],
            },
            "root",
        )
        self.start()
        token = self.rings[0].create_first()
        assert token is not None
        self.rings[1].refresh()
        who = self.rings[0].identify(token)
        assert who is not None
        self.oracle.people[who.principal] = Person("admin", None)
        self.oracle.tokens[token] = Token(who.key, who.principal, None)
        return token

    def teardown(self) -> None:
        if hasattr(self, "accountant"):
            self.accountant.close()

    def clock(self) -> str:
        return f"2030-01-01T{self.wall // 3600:02}:{self.wall // 60 % 60:02}:{self.wall % 60:02}.000000Z"

    def start(self) -> None:
        self.rings = [KeyRing(self.store, 0, self.clock) for _ in range(2)]

    def look(self) -> None:
        for ring in self.rings:
            ring.now()
            ring.refresh()
        self.oracle.kill()

    def alive(self, token: str) -> bool:
        return not self.oracle.tokens[token].dead

    def wrote(self) -> None:
        self.oracle.written = self.oracle.now

    def made(self, key: str, whose: str, token: str, life: int | None) -> str:
        ends = None if life is None else self.oracle.now + life
        self.oracle.tokens[token] = Token(key, whose, ends)
        self.wrote()
        return token

    # -- time

    @rule(seconds=st.integers(1, 30))
    def later(self, seconds: int) -> None:
        self.wall += seconds
        self.oracle.now = max(self.oracle.now, self.wall)
        self.look()

    @rule(seconds=st.integers(1, 60), anew=st.booleans())
    def set_back(self, seconds: int, anew: bool) -> None:
        self.wall = max(0, self.wall - seconds)
        if anew:
            self.start()
            self.oracle.now = max(self.wall, self.oracle.written)
        self.look()

    # -- principals and keys

    @rule(target=tokens, role=roles, team=teams, name=st.none() | names, life=lives, at=which)
    def create(
        self, role: str, team: str | None, name: tuple[str, str] | None, life: int | None, at: int
    ) -> str:
        same, spelt = (None, None) if name is None else name
        ring, oracle = self.rings[at], self.oracle
        if same in oracle.names:
            with pytest.raises(NameTaken) as told:
                ring.create(Role(role), spelt, "root", team, (), life)
            assert told.value.fields["principals"] == [oracle.names[same]]
            return next(iter(oracle.tokens))
        made, token = ring.create(Role(role), spelt, "root", team, (), life)
        assert made.principal not in oracle.people
        oracle.people[made.principal] = Person(role, team, None if spelt is None else KEPT.get(spelt, spelt))
        if same is not None:
            oracle.names[same] = made.principal
        return self.made(made.key, made.principal, token, life)

    @rule(target=tokens, token=tokens, life=lives, at=which)
    def add(self, token: str, life: int | None, at: int) -> str:
        whose = self.oracle.tokens[token].whose
        made, new = self.rings[at].add(whose, "root", life)
        return self.made(made.key, whose, new, life)

    @rule(target=tokens, token=tokens, overlap=st.integers(0, 20), life=lives, at=which)
    def rotate(self, token: str, overlap: int, life: int | None, at: int) -> str:
        old, ring, oracle = self.oracle.tokens[token], self.rings[at], self.oracle
        if old.dead or old.rotated:
            with pytest.raises(KeyEnded):
                ring.rotate(old.key, "root", overlap, life)
            return token
        if life is not None and oracle.lasting() and not oracle.lasting(without=old):
            with pytest.raises(Forbidden):
                ring.rotate(old.key, "root", overlap, life)
            return token
        made, new = ring.rotate(old.key, "root", overlap, life)
        ends = oracle.now + overlap
        old.ends, old.rotated = ends if old.ends is None else min(ends, old.ends), True
        self.made(made.key, old.whose, new, life)
        self.look()
        return new

    @rule(token=tokens, at=which)
    def revoke(self, token: str, at: int) -> None:
        found, ring, oracle = self.oracle.tokens[token], self.rings[at], self.oracle
        if oracle.lasting() and not oracle.lasting(without=found):
            with pytest.raises(Forbidden):
                ring.revoke(found.key, "root")
            return
        ring.revoke(found.key, "root")
        found.dead = True
        self.wrote()

    @rule(token=tokens, role=roles, team=teams, at=which)
    def change(self, token: str, role: str, team: str | None, at: int) -> None:
        whose, ring, oracle = self.oracle.tokens[token].whose, self.rings[at], self.oracle
        etag = ring.principal(whose)["etag"]
        if role != "admin" and oracle.lasting() and not oracle.lasting(reader=whose):
            with pytest.raises(Forbidden):
                ring.change_principal(whose, Role(role), team, (), "root", etag)
            return
        ring.change_principal(whose, Role(role), team, (), "root", etag)
        oracle.people[whose].role, oracle.people[whose].team = role, team
        self.wrote()

    @rule(token=tokens, at=which)
    def erase(self, token: str, at: int) -> None:
        whose = self.oracle.tokens[token].whose
        self.rings[at].erase_name(whose, "root")
        if self.oracle.people[whose].name is not None:
            self.oracle.people[whose].name = None
            self.wrote()

    # -- charges

    @rule(token=tokens, amount=amounts, at=which)
    def charge(self, token: str, amount: int, at: int) -> None:
        who = self.rings[at].identify(token)
        assert (who is not None) == self.alive(token)
        if who is None:
            return
        person, self.number = self.oracle.people[who.principal], self.number + 1
        assert (who.role.value, who.team) == (person.role, person.team)
        body, key = {"mechanism": {"kind": "pure", "epsilon": amount / 100}, "count": 1}, f"c{self.number}"
        if person.spent + amount > LIMIT:
            with pytest.raises(BudgetExceeded):
                self.accountant.charge("d", body, key, who.caller)
            return
        receipt, replayed = self.accountant.charge("d", body, key, who.caller)
        assert not replayed
        person.spent += amount
        if person.team is not None:
            self.oracle.teams[person.team] = self.oracle.teams.get(person.team, 0) + amount
        self.oracle.done[who.principal, key] = body, receipt["hash"]

    @rule(token=tokens, at=which, data=st.data())
    def again(self, token: str, at: int, data: st.DataObject) -> None:
        """A retry under any key of the principal gets the receipt that there was."""
        who = self.rings[at].identify(token)
        if who is None:
            return
        mine = [(key, *what) for (whose, key), what in self.oracle.done.items() if whose == who.principal]
        if mine:
            key, body, digest = data.draw(st.sampled_from(mine))
            receipt, replayed = self.accountant.charge("d", body, key, who.caller)
            assert (replayed, receipt["hash"]) == (True, digest)

    # -- what is always so

    @invariant()
    def both_say_what_the_oracle_says(self) -> None:
        if not hasattr(self, "rings"):
            return
        for ring in self.rings:
            assert [ring.identify(token) is not None for token in self.oracle.tokens] == [
                self.alive(token) for token in self.oracle.tokens
            ]
            listed = {one["id"]: one for one in ring.principals()}
            assert {name: (one["role"], one["team"], one["name"]) for name, one in listed.items()} == {
                name: (one.role, one.team, one.name) for name, one in self.oracle.people.items()
            }
        assert self.oracle.lasting()
        for scope, spent in self.spent().items():
            total = self.accountant.odometer("d", scope=scope)["totals"]["pure"]
            assert round(100 * total, 6) == spent

    def spent(self) -> dict[str, int]:
        own = {f"principal/{name}": one.spent for name, one in self.oracle.people.items() if one.spent}
        return own | {f"team/{name}": spent for name, spent in self.oracle.teams.items()}


PrincipalsMachine.TestCase.settings = examples(
    25 * FACTOR,
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow],
)
TestPrincipals = PrincipalsMachine.TestCase
