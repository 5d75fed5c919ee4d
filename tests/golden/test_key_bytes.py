"""The stream of keys as earlier versions wrote it opens and goes on; what this one writes stays as it is."""

import io
import json

import pytest

from odometer_accountant.errors import NameTaken
from odometer_accountant.ledger.principals import KEY_ENTRIES
from odometer_accountant.service.api_keys import STREAM, KeyRing, Role
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.transfer.export import export
from odometer_accountant.transfer.import_ import Import
from odometer_accountant.verify.walk import verify
from tests.golden.ledger.drive_keys import dump, run
from tests.golden.ledger.opened import lines, restore

OLD, FILE = "format_3.txt", "keys_format_4.txt"


def test_an_old_stream_has_a_principal_for_each_key_and_goes_on() -> None:
    """Doubles of a name stay, are shown with their ids, and are not three; each gets further keys."""
    store = restore(OLD, MemoryStore())
    ring = KeyRing(store)
    keys, people = ring.keys(), ring.principals()
    assert [key["principal"] for key in keys] == [one["id"] for one in people]
    assert len({one["id"] for one in people}) == len(people) == 4
    doubles = [one["id"] for one in people if one["name"] == "ann"]
    assert len(doubles) == 2
    with pytest.raises(NameTaken) as told:
        ring.create(Role.reader, "Ann", "p_root")
    assert told.value.fields["principals"] == doubles
    made, token = ring.add(doubles[1], "p_root")  # whose only key was revoked
    ring.erase_name(doubles[0], "p_root")
    again = KeyRing(store)
    assert again.identify(token) == made
    assert (made.team, made.acts_for) == ("red", frozenset({"carol", "dave"}))
    with pytest.raises(NameTaken):
        again.create(Role.reader, "ann", "p_root")
    assert [found for verdict in verify(store) for found in verdict.findings] == []


def test_what_is_written_of_keys_has_these_bytes() -> None:
    """Every type of entry; a change of these bytes is another format."""
    store = MemoryStore()
    run(store)
    assert list(dump(store)) == lines(FILE)


def test_the_golden_stream_has_every_type_of_entry() -> None:
    """What the old format can say is in it, all else in the new one."""
    entries = [json.loads(line.split(" ", 3)[3]) for line in lines(FILE) if line.startswith("entry")]
    assert {entry["type"] for entry in entries} == set(KEY_ENTRIES)
    assert {entry["v"] for entry in entries if entry["type"] == "key_revoked"} == {3}
    assert {entry["v"] for entry in entries if "name_claim" in entry} == {4}


def test_the_golden_stream_opens_and_moves() -> None:
    """Its keys, roles and names are what they were, and are after an export and import."""
    tokens = run(MemoryStore())
    store = restore(FILE, MemoryStore())
    file = io.BytesIO()
    export(store, file, "2027-01-01T00:00:00.000000Z")
    target = MemoryStore()
    file.seek(0)
    with Import(file) as found:
        found.check()
        found.write(target)
    for ring in (KeyRing(store, clock=lambda: ""), KeyRing(target, clock=lambda: "")):
        seen = [ring.identify(token) is not None for token in tokens.values()]
        assert seen == [True, False, False, False, True, True, False, True]
        assert [(one["name"], one["role"], one["team"], one["keys"]) for one in ring.principals()] == [
            (None, "admin", None, 2),
            (None, "charger", "red", 1),
            (None, "reader", None, 0),
            ("Bob B", "reader", "blue", 1),
            ("eve", "admin", None, 0),
        ]
        for name in ("ann", "ANN", "bob b"):
            with pytest.raises(NameTaken):
                ring.create(Role.reader, name, "p_root")
    assert store.load(STREAM, []) == target.load(STREAM, [])
