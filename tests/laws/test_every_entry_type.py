"""The registry of entry types. tests/golden/test_wire_bytes.py checks that each type has golden bytes."""

import json
from pathlib import Path

import pytest

from odometer_accountant.errors import LedgerCorrupt
from odometer_accountant.ledger.commands import Command, LookCommand
from odometer_accountant.ledger.decisions import DECIDERS
from odometer_accountant.ledger.entry_types import ENTRY_TYPES, stated_key
from odometer_accountant.ledger.principals import KEY_ENTRIES
from odometer_accountant.ledger.replay import own_entry
from odometer_accountant.stores import Row
from odometer_accountant.verify.recount import CHECKS

GOLDEN = Path(__file__).parents[1] / "golden"
FILES = [*sorted((GOLDEN / "ledger").glob("format_*.txt")), GOLDEN / "wire" / "adopted.txt"]


def golden() -> list[tuple[str, dict[str, object]]]:
    """(the key that the store has or "-", the entry) for every entry of the golden ledgers of datasets."""
    found = []
    for file in FILES:
        for line in file.read_text("utf-8").splitlines():
            if line.startswith("entry "):
                key, _, body = line.removeprefix("entry ").split(" ", 2)
                entry = json.loads(body)
                if entry["type"] not in KEY_ENTRIES:
                    found.append((key, entry))
    return found


def commands(parent: type[Command] = Command) -> set[type[Command]]:
    """Every type of command that has no subtypes."""
    below = {one for child in parent.__subclasses__() for one in commands(child)}
    return below or {parent}


def test_every_golden_entry_states_the_key_that_the_store_has_for_it() -> None:
    """The store finds an entry by the key that its type registered: a retry is answered again."""
    assert [(entry["seq"], key) for key, entry in golden() if (stated_key(entry) or "-") != key] == []


def test_every_command_is_decided() -> None:
    """No command reaches the ledger without a function that decides on it."""
    assert set(DECIDERS) == commands() - {LookCommand}


def test_the_checks_of_verify_name_registered_types() -> None:
    """A check of a type that does not exist would never run. Every type with losses or a key has one."""
    assert set(CHECKS) <= set(ENTRY_TYPES)
    assert {name for name, one in ENTRY_TYPES.items() if one.losses or one.key} <= set(CHECKS)


@pytest.mark.parametrize("name", sorted(ENTRY_TYPES))
def test_only_a_release_or_its_settlement_changes_totals(name: str) -> None:
    """A type that releases something counts its loss; no total changes for another reason."""
    one = ENTRY_TYPES[name]
    assert (one.losses is not None) == (one.releases or name == "settled")


def test_an_entry_is_never_taken_for_that_of_another_key() -> None:
    """A key that leads to another entry is damage: nothing is released on it."""
    for file in FILES:
        for line in file.read_text("utf-8").splitlines():
            if not line.startswith("entry ") or line.startswith("entry - "):
                continue
            key, digest, body = line.removeprefix("entry ").split(" ", 2)
            row = Row(json.loads(body)["seq"], digest, body.encode("ascii"))
            assert own_entry(row, "d", key) == json.loads(body)
            with pytest.raises(LedgerCorrupt, match="not its own"):
                own_entry(row, "d", key + "x")
