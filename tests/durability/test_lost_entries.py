"""An entry that was there and is gone, torn or another is damage for whoever names it, never unknown."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from serving import ONE, dataset_document

from odometer_accountant.errors import LedgerCorrupt
from odometer_accountant.ledger.entries import canonical, entry_hash
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import Row
from odometer_accountant.stores.memory import MemoryStore

SESSION = {"kind": "sparse_vector", "epsilon_threshold": 1e-3, "epsilon_answers": 1e-3, "max_above": 3}


class Gappy(MemoryStore):
    """A store that has lost an entry, and does not say so."""

    gone = 0

    def entries(self, stream: str, after: int, limit: int) -> list[Row]:
        return [row for row in super().entries(stream, after, limit) if row.sequence != self.gone]


class World:
    """A ledger with a hold, a session that was answered, a derived entry, and charges before and after."""

    def __init__(self) -> None:
        self.store = Gappy()
        self.accountant = Accountant(self.store)
        self.accountant.create_dataset(dataset_document("d"), "p")
        self.charged = self.charge("first")
        held, _ = self.accountant.hold("d", {**ONE, "expires_in_s": 1000}, "h", "p")
        self.hold, self.held = held["hold"]["id"], held["sequence"]
        opened, _ = self.accountant.open_session("d", {"session": SESSION}, "s", "p")
        self.session, self.opened = opened["session"]["id"], opened["receipt"]["sequence"]
        answered, _ = self.accountant.answer_session("d", self.session, {"above": True}, "a", "p")
        self.answered = answered["receipt"]["sequence"]
        made, _ = self.derive("m")
        self.made = made["sequence"]
        self.charge("last")

    def charge(self, key: str) -> int:
        return int(self.accountant.charge("d", ONE, key, "p")[0]["sequence"])

    def derive(self, key: str) -> tuple[dict[str, Any], bool]:
        return self.accountant.derive("d", {"parent": self.charged, "description": "a model"}, key, "p")

    def answer(self, key: str) -> Any:
        return self.accountant.answer_session("d", self.session, {"above": True}, key, "p")

    def damage(self, number: int, how: str) -> None:
        """Make an entry another, whose hash is its own, or torn, or gone."""
        if how == "gone":
            self.store.gone = number
            return
        rows = self.store._streams["d"].rows
        row = rows[number - 1]
        body = canonical({**json.loads(row.body), "principal": "somebody", "time": "2000-01-01"})
        rows[number - 1] = replace(row, body=body, hash=entry_hash(body) if how == "another" else row.hash)


ASKED: dict[str, tuple[str, Callable[[World], Any]]] = {
    "settle": ("held", lambda w: w.accountant.settle("d", w.hold, {"used": 0}, "p")),
    "holds": ("held", lambda w: w.accountant.holds("d")),
    "what is held": ("held", lambda w: w.accountant.odometer("d")),
    "session": ("opened", lambda w: w.accountant.session("d", w.session)),
    "sessions": ("opened", lambda w: w.accountant.sessions("d")),
    "answer": ("opened", lambda w: w.answer("a2")),
    "answer again": ("opened", lambda w: w.answer("a")),
    "close": ("opened", lambda w: w.accountant.close_session("d", w.session, "p")),
    "parent": ("charged", lambda w: w.derive("m2")),
    "lineage": ("charged", lambda w: w.accountant.lineage("d", w.charged)),
    "lineage of what was made": ("charged", lambda w: w.accountant.lineage("d", w.made)),
    "lineage of another": ("made", lambda w: w.accountant.lineage("d", w.charged)),
    "history": ("charged", lambda w: w.accountant.history("d")),
    "ledger": ("charged", lambda w: w.accountant.ledger("d")),
    "ledger, newest first": ("charged", lambda w: w.accountant.ledger("d", newest_first=True)),
}


@pytest.mark.parametrize("how", ["gone", "torn", "another"])
@pytest.mark.parametrize("asked", ASKED)
def test_an_entry_that_was_lost_is_damage_for_whoever_names_it(asked: str, how: str) -> None:
    entry, ask = ASKED[asked]
    world = World()
    ask(World())  # of a whole ledger it is answered
    world.damage(getattr(world, entry), how)
    with pytest.raises(LedgerCorrupt):
        ask(world)
    assert world.charge("goes-on") > world.made


def test_a_new_process_finds_a_recent_entry_that_is_another() -> None:
    world = World()
    world.damage(1, "another")  # nobody ever needs it again
    with pytest.raises(LedgerCorrupt):
        Accountant(world.store).charge("d", ONE, "next", "p")


def test_an_answer_that_is_told_again_is_its_own() -> None:
    """Its key leads to the entry of another answer: what is told again must not be what that was paid for."""
    world = World()
    sequences = world.store._streams["d"].sequences
    world.answer("a2")
    sequences["p/a"] = sequences["p/a2"]
    with pytest.raises(LedgerCorrupt):
        world.answer("a")
