"""Keys that end, the last admin, and names that two want: decided at the end of the stream of keys."""

import json
from collections.abc import Callable

import pytest

from odometer_accountant.errors import (
    Forbidden,
    InvalidRequest,
    KeyEnded,
    NameTaken,
    StoreUnavailable,
    UpgradeNeeded,
)
from odometer_accountant.ledger.entries import seal
from odometer_accountant.service.api_keys import STREAM, KeyRing, Role
from odometer_accountant.service.principal_names import name_hash
from odometer_accountant.service.request_checks import barred
from odometer_accountant.stores import Note, Store, Write, open_store
from odometer_accountant.stores.memory import MemoryStore


class Wall:
    """A clock on the wall, which may be set back."""

    def __init__(self) -> None:
        self.second = 0

    def __call__(self) -> str:
        return (
            f"2030-01-01T{self.second // 3600:02}:{self.second // 60 % 60:02}:{self.second % 60:02}.000000Z"
        )


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def store() -> MemoryStore:
    store = open_store("memory://")
    assert isinstance(store, MemoryStore)
    return store


def kinds(store: Store) -> list[tuple[str, int]]:
    """Type and format of every entry."""
    entries = [json.loads(row.body) for row in store.entries(STREAM, 0, 1000)]
    return [(entry["type"], entry["v"]) for entry in entries]


# Time


def test_a_key_is_taken_until_its_end_and_not_at_it(store: MemoryStore, wall: Wall) -> None:
    """To the microsecond, from the cache alone."""
    ring = KeyRing(store, 60, wall)
    _, token = ring.create(Role.charger, None, "root", expires_in_s=10)
    wall.second = 9
    assert ring.cached(token) is not None
    wall.second = 10
    assert ring.cached(token) is None


def test_an_expired_key_stays_expired_when_the_clock_is_set_back(store: MemoryStore, wall: Wall) -> None:
    """In this process, and in one that starts afterwards: its end is an entry."""
    ring = KeyRing(store, 0, wall)
    made, token = ring.create(Role.charger, None, "root", expires_in_s=10)
    wall.second = 10
    assert ring.identify(token) is None
    wall.second = 5
    assert ring.identify(token) is None
    again = KeyRing(store, 0, wall)
    assert again.identify(token) is None
    assert again.holder(made.key) is None
    assert kinds(store)[-1] == ("key_expired", 4)
    assert again.key(made.key)["expired"]


def test_the_end_of_a_key_is_written_once(store: MemoryStore, wall: Wall) -> None:
    """Whoever comes upon it, and however often."""
    rings = [KeyRing(store, 0, wall) for _ in range(3)]
    tokens = [rings[0].create(Role.charger, None, "root", expires_in_s=10)[1] for _ in range(2)]
    wall.second = 60
    for ring in rings * 2:
        assert [ring.identify(token) for token in tokens] == [None, None]
    assert [kind for kind, _ in kinds(store)].count("key_expired") == 2


def test_a_store_that_takes_no_entry_revives_no_expired_key(
    store: MemoryStore, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end cannot be written, and holds all the same; keys that go on go on."""
    ring = KeyRing(store, 0, wall)
    _, ends = ring.create(Role.charger, None, "root", expires_in_s=10)
    _, stays = ring.create(Role.charger, None, "root")

    def full(writes: object) -> list[bool]:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(store, "append", full)
    wall.second = 11
    assert ring.identify(ends) is None
    assert ring.identify(stays) is not None


def test_a_rotated_key_ends_after_the_overlap_and_never_later_than_it_would_have(
    store: MemoryStore, wall: Wall
) -> None:
    """A rotation gives no key a longer life."""
    ring = KeyRing(store, 60, wall)
    long, long_token = ring.create(Role.charger, None, "root")
    short, short_token = ring.create(Role.charger, None, "root", expires_in_s=10)
    for key in (long, short):
        ring.rotate(key.key, "root", 20)
    wall.second = 10
    assert (ring.cached(short_token), ring.cached(long_token) is None) == (None, False)
    wall.second = 20
    assert ring.cached(long_token) is None
    with pytest.raises(KeyEnded):
        ring.rotate(short.key, "root", 20)


# The last admin


@pytest.fixture
def admin(store: MemoryStore, wall: Wall) -> tuple[KeyRing, str, str]:
    """A ring with one admin: its key and principal."""
    ring = KeyRing(store, 0, wall)
    token = ring.create_first()
    who = ring.identify(token)
    assert who is not None
    return ring, who.key, who.principal


def demote(ring: KeyRing, principal: str) -> None:
    ring.change_principal(principal, Role.reader, None, (), "root", ring.principal(principal)["etag"])


ENDINGS: dict[str, Callable[[KeyRing, str, str], object]] = {
    "revoked": lambda ring, key, _: ring.revoke(key, "root"),
    "demoted": lambda ring, _, principal: demote(ring, principal),
    "replaced by one with an end": lambda ring, key, _: ring.rotate(key, "root", 0, 60),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_the_last_admin_key_without_an_end_stays(
    admin: tuple[KeyRing, str, str], store: MemoryStore, how: str
) -> None:
    """One that will end does not count: nobody would be left when it has."""
    ring, key, principal = admin
    ring.create(Role.admin, None, "root", expires_in_s=60)
    ring.create_principal(Role.admin, "no key", "root")
    before = kinds(store)
    with pytest.raises(Forbidden, match="make another one first"):
        ENDINGS[how](ring, key, principal)
    assert kinds(store) == before
    ring.create(Role.admin, None, "root")
    ENDINGS[how](ring, key, principal)


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("other", ENDINGS)
def test_of_two_ends_at_once_the_second_is_told_of_the_first(
    admin: tuple[KeyRing, str, str], store: MemoryStore, wall: Wall, how: str, other: str
) -> None:
    """Two admins who each take the other's place away: one of them stays."""
    ring, key, principal = admin
    second, _ = ring.create(Role.admin, None, "root")
    elsewhere = KeyRing(store, 0, wall)
    faster(ring, lambda: ENDINGS[other](elsewhere, second.key, second.principal))
    with pytest.raises(Forbidden, match="make another one first"):
        ENDINGS[how](ring, key, principal)
    assert KeyRing(store, 0, wall)._register.lasting_admins() == {key}


def faster(ring: KeyRing, first: Callable[[], object]) -> None:
    """Between a change's decision and its append, another process makes one."""
    store, append = ring._store, ring._store.append
    waiting = [first]

    def late(writes: list[Write]) -> list[bool]:
        while waiting:
            waiting.pop()()
        return append(writes)

    store.append = late  # type: ignore[method-assign]


def test_whoever_may_write_the_ledger_recovers_it(
    admin: tuple[KeyRing, str, str], store: MemoryStore
) -> None:
    """With a key of a new admin, or of one that there is; the entry says so."""
    ring, _, principal = admin
    for named in (None, principal):
        made, token = ring.recover(named)
        assert ring.identify(token) == made
        assert made.role is Role.admin
        assert (made.principal == principal) == (named is not None)
        assert json.loads(store.entries(STREAM, 0, 1000)[-1].body)["by"] == "recovery"
    other, _ = ring.create(Role.charger, None, "root")
    with pytest.raises(Forbidden, match="no admin"):
        ring.recover(other.principal)


# Names


def crash(*_: object) -> None:
    """The process is gone."""
    raise SystemExit


def test_of_two_processes_that_want_a_name_one_has_it(store: MemoryStore, wall: Wall) -> None:
    """The loser's note is gone again, and its error names the winner."""
    ring, elsewhere = KeyRing(store, 0, wall), KeyRing(store, 0, wall)
    won: list[str] = []
    faster(ring, lambda: won.append(elsewhere.create_principal(Role.reader, "ann", "root")))
    with pytest.raises(NameTaken) as told:
        ring.create(Role.charger, "Ann", "root")
    assert told.value.fields["principals"] == won
    assert sorted(name for name in store._notes if name.startswith("p_")) == won


def test_a_crash_between_a_name_and_its_entry_takes_no_name(
    store: MemoryStore, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same is asked again, and done."""
    ring = KeyRing(store, 0, wall)
    with monkeypatch.context() as patched:
        patched.setattr(store, "append", crash)
        with pytest.raises(SystemExit):
            ring.create(Role.charger, "ann", "root")
    again = KeyRing(store, 0, wall)
    made, _ = again.create(Role.charger, "ann", "root")
    assert [one["id"] for one in again.principals()] == [made.principal]
    with pytest.raises(NameTaken):
        KeyRing(store, 0, wall).create(Role.charger, "ann", "root")


def test_a_crash_while_a_name_is_erased_is_finished_by_doing_it_again(
    store: MemoryStore, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not shown from the entry on, and never free."""
    ring = KeyRing(store, 0, wall)
    principal = ring.create_principal(Role.reader, "ann", "root")
    with monkeypatch.context() as patched:
        patched.setattr(store, "erase_note", crash)
        with pytest.raises(SystemExit):
            ring.erase_name(principal, "root")
    again = KeyRing(store, 0, wall)
    assert again.principal(principal)["name"] is None
    again.erase_name(principal, "root")
    assert principal not in store._notes
    with pytest.raises(NameTaken, match="erased"):
        again.create_principal(Role.reader, "ANN", "root")


# Ledgers of before


def old(store: MemoryStore, *documents: dict[str, object]) -> None:
    """Entries as format 3 wrote them."""
    head, _ = store.load(STREAM, [])
    for number, document in enumerate(documents):
        entry, after = seal(head, {**document, "time": f"2026-01-01T00:00:0{number}.000000Z", "by": "root"})
        assert store.append([Write(STREAM, head, [entry])]) == [True]
        head = after


def old_key(number: int, name_hash: str | None = None, role: str = "charger") -> dict[str, object]:
    document: dict[str, object] = {
        "type": "key_created",
        "id": f"k_{number:016x}",
        "principal": f"p_{number:016x}",
        "role": role,
        "token_hash": f"{number:064x}",
    }
    return document | ({} if name_hash is None else {"name_hash": name_hash})


def test_old_doubles_stay_and_are_named_with_their_ids(store: MemoryStore, wall: Wall) -> None:
    """Each old key is a principal of its own; a third of the name is refused, and told of both."""
    notes = [Note("salt", "ann"), Note("pepper", "Ann")]
    old(
        store,
        *(old_key(number, name_hash(note)) for number, note in enumerate(notes)),
        old_key(2, role="admin"),
    )
    for number, note in enumerate(notes):
        store.put_note(f"p_{number:016x}", note)
    ring = KeyRing(store, 0, wall)
    assert [one["name"] for one in ring.principals()] == ["ann", "Ann", None]
    with pytest.raises(NameTaken) as told:
        ring.create(Role.charger, "ANN", "root")
    assert told.value.fields["principals"] == [f"p_{0:016x}", f"p_{1:016x}"]
    ring.erase_name(f"p_{0:016x}", "root")
    ring.erase_name(f"p_{1:016x}", "root")
    with pytest.raises(NameTaken, match="erased"):
        KeyRing(store, 0, wall).create(Role.charger, "ann", "root")


def test_whom_an_old_key_acts_for_by_name_it_acts_for_still(store: MemoryStore, wall: Wall) -> None:
    """A query service of before goes on; one that is made now, or acts for anybody, is told of the id."""
    note = Note("salt", "ann")
    old(store, old_key(0, name_hash(note)), {**old_key(1), "acts_for": ["ann"]})
    store.put_note(f"p_{0:016x}", note)
    ring = KeyRing(store, 0, wall)
    who = ring.holder(f"k_{1:016x}")
    assert who is not None
    assert barred(who.caller, "ann") is None
    made, _ = ring.create(Role.charger, None, "root", None, ["*"])
    assert f"p_{0:016x}" in str(barred(made.caller, "ann"))
    with pytest.raises(InvalidRequest, match="ann is the name of a principal"):
        ring.create(Role.charger, None, "root", None, ["ann"])
    later, _ = ring.create(Role.charger, None, "root", None, ["bob"])
    ring.create(Role.charger, "Bob", "root")
    assert "is the name of a principal" in str(barred(later.caller, "bob"))


def test_what_the_old_format_can_say_is_written_in_it(store: MemoryStore, wall: Wall) -> None:
    """A worker that is not upgraded yet reads on until something new is said."""
    ring = KeyRing(store, 0, wall)
    assert ring.create_first() is not None
    made, _ = ring.create(Role.charger, None, "root", "ads", ["alice"])
    ring.revoke(made.key, "root")
    assert kinds(store) == [("key_created", 3), ("key_created", 3), ("key_revoked", 3)]
    ring.create(Role.charger, "ann", "root")
    assert kinds(store)[-1] == ("key_created", 4)


def test_a_later_format_asks_for_a_newer_worker(store: MemoryStore, wall: Wall) -> None:
    """It is not called damage."""
    old(store, old_key(0))
    ring = KeyRing(store, 0, wall)
    head, _ = store.load(STREAM, [])
    entry, _ = seal(head, {"type": "key_lent", "id": "k", "time": "2027"}, None, 5)
    store.append([Write(STREAM, head, [entry])])
    with pytest.raises(UpgradeNeeded, match="upgrade this worker"):
        ring.refresh()
