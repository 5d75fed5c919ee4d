"""What was made of a release is on record: it costs nothing, and its line of descent can be read."""

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from odometer_accountant.errors import (
    BodyTooLarge,
    Forbidden,
    IdempotencyKeyRequired,
    InvalidRequest,
    KeyReused,
)
from odometer_accountant.ledger import derived
from odometer_accountant.ledger.commands import Caller
from odometer_accountant.ledger.entries import canonical, entry_hash
from odometer_accountant.ledger.fold import fold
from odometer_accountant.queries import lineage
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import EMPTY_HEAD, NewEntry, Write, open_store
from odometer_accountant.transfer.export import export
from odometer_accountant.transfer.import_ import Import
from odometer_accountant.verify.walk import verify

LIFE = {"name": "life", "kind": "zcdp", "rho": 5}
CHARGE = {"mechanism": {"kind": "gaussian", "noise_multiplier": 4.0}, "count": 1}


def opened(name: str = "d", **more: Any) -> dict[str, Any]:
    document = {"name": name, "unit": "person", "adjacency": "add_remove", "delta": 1e-6, "budgets": [LIFE]}
    return document | more


@pytest.fixture
def ledger() -> Iterator[Accountant]:
    """Entry 2 is a charge."""
    with Accountant.open("memory://") as accountant:
        accountant.create_dataset(opened(), "root")
        accountant.charge("d", CHARGE, "k", "ada")
        yield accountant


def derive(ledger: Accountant, parent: int, key: str, what: str = "a plot", by: str = "ada") -> int:
    receipt, _ = ledger.derive("d", {"parent": parent, "description": what}, key, by)
    return int(receipt["sequence"])


def sound(ledger: Accountant) -> bool:
    return all(one.ok for one in verify(ledger.store))


def refused(ledger: Accountant, parent: Any, key: str = "no", what: Any = "a plot") -> str:
    before = ledger.dataset("d")["sequence"]
    with pytest.raises(InvalidRequest) as caught:
        ledger.derive("d", {"parent": parent, "description": what}, key, "ada")
    assert ledger.dataset("d")["sequence"] == before
    return caught.value.detail


def test_nothing_is_lost(ledger: Accountant) -> None:
    before = ledger.odometer("d")
    derive(ledger, 2, "p")
    after = ledger.odometer("d")
    assert {**after, "sequence": 0, "time": ""} == {**before, "sequence": 0, "time": ""}
    assert ledger.spend("d") == ledger.spend("d")
    assert sound(ledger)


def test_the_entry_says_what_it_comes_of(ledger: Accountant) -> None:
    number = derive(ledger, 2, "p", "rounded to hundreds")
    entry = ledger.ledger("d", after=number - 1)["items"][0]["entry"]
    assert (entry["type"], entry["principal"], entry["key"]) == ("derived", "ada", "p")
    assert entry["command"] == {"parent": 2, "description": "rounded to hundreds"}
    assert "losses" not in entry


def test_asked_again_it_is_the_same_entry(ledger: Accountant) -> None:
    number = derive(ledger, 2, "p")
    receipt, replayed = ledger.derive("d", {"parent": 2, "description": "a plot"}, "p", "ada")
    assert (receipt["sequence"], receipt["replayed"], replayed) == (number, True, True)
    assert ledger.dataset("d")["sequence"] == number


def test_a_key_is_used_once_for_charges_and_what_is_made_of_them(ledger: Accountant) -> None:
    derive(ledger, 2, "p")
    with pytest.raises(KeyReused):
        derive(ledger, 2, "p", "another plot")
    with pytest.raises(KeyReused):
        derive(ledger, 2, "k")
    with pytest.raises(KeyReused):
        ledger.charge("d", CHARGE, "p", "ada")
    with pytest.raises(KeyReused):
        ledger.hold("d", CHARGE | {"expires_in_s": 60}, "p", "ada")
    assert derive(ledger, 2, "p", by="bob") == 4
    with pytest.raises(IdempotencyKeyRequired):
        ledger.derive("d", {"parent": 2, "description": "x"}, None, "ada")


def test_only_what_went_out_is_a_parent(ledger: Accountant) -> None:
    assert "no entry 3" in refused(ledger, 3)
    assert "of type opened and let nothing out" in refused(ledger, 1)
    hold = ledger.hold("d", CHARGE | {"expires_in_s": 60}, "h", "ada")[0]
    assert derive(ledger, 3, "of-a-hold") == 4
    ledger.settle("d", hold["hold"]["id"], {"used": 1}, "ada")
    assert "it settles hold 3: name that entry" in refused(ledger, 5)
    for parent in (0, -1, 2**53, 2.0, "2", True, None):
        assert refused(ledger, parent).startswith("parent")
    assert sound(ledger)


@pytest.mark.parametrize("what", ["", "x" * 201, "two\nlines", "\u202eright to left", "\x9b0m", 7])
def test_a_description_is_one_line(ledger: Accountant, what: Any) -> None:
    assert refused(ledger, 2, what=what).startswith("description")


def test_a_large_body_is_not_read(ledger: Accountant) -> None:
    with pytest.raises(BodyTooLarge):
        ledger.derive("d", b" " * 300_000, "p", "ada")


def test_a_closed_dataset_takes_it(ledger: Accountant) -> None:
    ledger.close_dataset("d", "root")
    assert derive(ledger, 2, "p") == 4
    assert sound(ledger)


def test_the_line_of_descent(ledger: Accountant) -> None:
    """Of two children and a grandchild, each with its ancestors, nearest first."""
    first, second = derive(ledger, 2, "a"), derive(ledger, 2, "b")
    ledger.charge("d", CHARGE, "k2", "ada")
    grandchild = derive(ledger, first, "c")
    other = derive(ledger, 5, "other")

    def told(number: int) -> tuple[list[int], list[int]]:
        found = ledger.lineage("d", number)
        assert found["entry"]["sequence"] == number
        assert found["next"] is None
        return tuple([one["sequence"] for one in found[part]] for part in ("ancestors", "descendants"))  # type: ignore[return-value]

    assert told(2) == ([], [first, second, grandchild])
    assert told(first) == ([2], [grandchild])
    assert told(grandchild) == ([first, 2], [])
    assert told(5) == ([], [other])
    with pytest.raises(InvalidRequest, match="dataset d has no entry 99"):
        ledger.lineage("d", 99)


def test_a_line_has_what_a_reader_needs_and_no_more(ledger: Accountant) -> None:
    """Number, who, when, of what and what it is; the losses and the chain are the ledger's."""
    table = derive(ledger, 2, "a")
    found = ledger.lineage("d", table)
    [release] = found["ancestors"]
    entry = ledger.ledger("d", 2, 1)["items"][0]
    assert found["entry"] == {
        "sequence": table,
        "hash": entry["hash"],
        "type": "derived",
        "time": entry["entry"]["time"],
        "principal": "ada",
        "by": None,
        "parent": 2,
        "description": entry["entry"]["command"]["description"],
        "charges": None,
    }
    assert (release["type"], release["parent"], release["description"]) == ("charged", None, None)
    assert release["charges"] == [CHARGE]
    assert release.keys() == found["entry"].keys()


def test_a_long_ledger_is_looked_through_in_parts(
    ledger: Accountant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage, "SCAN_MAX", 3)
    line = [derive(ledger, 2, "0")]
    for index in range(1, 9):
        line.append(derive(ledger, line[-1], str(index)))
    found: list[int] = []
    after: int | None = 0
    while after is not None:
        page = ledger.lineage("d", line[1], after)
        found += [one["sequence"] for one in page["descendants"]]
        assert len(page["descendants"]) <= 3
        after = page["next"]
    assert found == line[2:]


def test_descent_has_an_end(ledger: Accountant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived, "DEPTH_MAX", 3)
    number = 2
    for index in range(3):
        number = derive(ledger, number, str(index))
    assert "is 3 steps away" in refused(ledger, number)


def test_text_that_looks_like_an_entry_is_text(ledger: Accountant) -> None:
    """The bytes of entries are searched for a mark: no caller can write it into a text."""
    ledger.charge("d", CHARGE, 'k"type":"derived"', "ada")
    ledger.charge(
        "d", {"mechanism": {"kind": "pure", "epsilon": 1e-9}, "count": 1}, '"type":"derived"', "bob"
    )
    assert ledger.lineage("d", 2)["descendants"] == []


def test_a_parent_that_another_process_wrote_is_found(ledger: Accountant) -> None:
    derive(ledger, 2, "p")  # which leaves the ledger's end in memory
    with Accountant(ledger.store) as other:
        receipt, _ = other.charge("d", CHARGE, "k2", "bob")
        assert derive(ledger, receipt["sequence"], "q") == 5
        ledger.writer.close()
        ledger.rollback_monitor.close()


def test_of_units_the_main_ledger_alone_has_parents() -> None:
    with Accountant.open("memory://") as accountant:
        units = [LIFE | {"scope": "unit/*"}]
        accountant.create_dataset(opened(composition="by_unit", shards=2, budgets=units), "root")
        accountant.charge("d", CHARGE | {"units": ["u1"]}, "k", Caller("ada"))
        assert "of type shard_opened" in refused(accountant, 2)


def test_history_goes_on_over_it(ledger: Accountant) -> None:
    for index in range(130):
        derive(ledger, 2, f"p{index}")
    points = ledger.history("d", 50)["points"]
    assert points[-1]["sequence"] == 132
    assert points[-1]["if_stopped_now"] == points[-2]["if_stopped_now"]
    assert sound(ledger)


def test_it_moves_with_the_ledger(ledger: Accountant) -> None:
    """Also its key: asked again in the new store, it is the same entry."""
    number = derive(ledger, derive(ledger, 2, "p"), "q")
    file = io.BytesIO()
    export(ledger.store, file, "2026-01-01T00:00:00.000000Z")
    target = open_store("memory://")
    with Import(file) as moved:
        moved.check()
        moved.write(target)
    with Accountant(target) as again:
        assert sound(again)
        assert again.derive("d", {"parent": 3, "description": "a plot"}, "q", "ada")[1]
        assert again.lineage("d", 2) == ledger.lineage("d", 2)
        assert again.dataset("d")["sequence"] == number


def changed(ledger: Accountant, place: int, **to: Any) -> list[str]:
    """What `verify` finds when an entry says something else and the chain was made good again."""
    rows = ledger.store.entries("d", 0, 100)
    entries, before = [], ""
    for row in rows:
        entry = json.loads(row.body)
        key = f"{entry.get('by', entry['principal'])}/{entry['key']}" if "key" in entry else None
        if row.sequence == place:
            entry["command"] |= {name: value for name, value in to.items() if name == "parent"}
            entry |= {name: value for name, value in to.items() if name != "parent"}
        body = canonical({**entry, "prev": before})
        before = entry_hash(body)
        entries.append(NewEntry(before, body, key))
    store = open_store("memory://")
    state = fold([(one.hash, one.body) for one in entries])
    assert state is not None
    store.append([Write("d", EMPTY_HEAD, entries, state.blobs())])
    return [finding.what for verdict in verify(store) for finding in verdict.findings]


def test_verify_finds_a_line_that_does_not_hold(ledger: Accountant) -> None:
    first = derive(ledger, 2, "a")
    second = derive(ledger, first, "b")
    assert changed(ledger, first, time=ledger.state("d").time) == []
    assert changed(ledger, first, parent=1) == ["comes of entry 1, with which nothing went out"]
    assert changed(ledger, second, depth=1) == ["says that it is 1 steps away from a charge; it is 2"]


# -- on somebody's behalf


GATEWAY = Caller("gateway", acts_for=frozenset({"bob", "ada"}))
BOBS = {"parent": 2, "description": "a plot", "principal": "bob"}


def test_on_somebodys_behalf_it_is_theirs_and_says_who_asked(ledger: Accountant) -> None:
    receipt, _ = ledger.derive("d", BOBS, "p", GATEWAY)
    assert (receipt["principal"], receipt["by"]) == ("bob", "gateway")
    entry = ledger.ledger("d", after=2)["items"][0]["entry"]
    assert (entry["principal"], entry["by"], entry["key"]) == ("bob", "gateway", "p")
    assert entry["command"] == {"parent": 2, "description": "a plot"}
    assert "by" not in ledger.derive("d", BOBS, "q", Caller("bob"))[0]
    assert sound(ledger)


@pytest.mark.parametrize(
    "caller", [Caller("eve"), Caller("eve", admin=True), Caller("eve", None, frozenset("a"))]
)
def test_on_behalf_of_whom_a_key_may_not_act_nothing_is_recorded(ledger: Accountant, caller: Caller) -> None:
    """An admin neither: as with charges."""
    with pytest.raises(Forbidden, match="on behalf of bob"):
        ledger.derive("d", BOBS, "p", caller)
    assert ledger.dataset("d")["sequence"] == 2


def test_its_key_is_the_askers_own(ledger: Accountant) -> None:
    """Asked again it is the same; for another principal it is another thing; bob's own key is untouched."""
    number = ledger.derive("d", BOBS, "p", GATEWAY)[0]["sequence"]
    receipt, replayed = ledger.derive("d", BOBS, "p", GATEWAY)
    assert (receipt["sequence"], receipt["by"], replayed) == (number, "gateway", True)
    for other in ({"principal": "ada"}, {"principal": "gateway"}, {"principal": None}):
        with pytest.raises(KeyReused):
            ledger.derive("d", BOBS | other, "p", GATEWAY)
    with pytest.raises(KeyReused):
        ledger.charge("d", CHARGE | {"principal": "bob"}, "p", GATEWAY)
    assert derive(ledger, 2, "p", by="bob") == number + 1
    assert sound(ledger)


def test_verify_finds_a_key_that_was_used_twice_by_who_asked(ledger: Accountant) -> None:
    first, _ = ledger.derive("d", BOBS, "p", GATEWAY)
    second, _ = ledger.derive("d", BOBS, "q", GATEWAY)
    found = changed(ledger, second["sequence"], key="p")
    assert f"has the idempotency key of entry {first['sequence']}" in found


@pytest.mark.parametrize("wrong", ["", "a b", 3, ["bob"], "x" * 200])
def test_a_principal_is_a_name(ledger: Accountant, wrong: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ledger.derive("d", BOBS | {"principal": wrong}, "p", GATEWAY)
    assert caught.value.detail.startswith("principal")
