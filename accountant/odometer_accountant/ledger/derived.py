"""The decision on an entry that says what was made of a release. Pure."""

from typing import Any, Final

from odometer_accountant.errors import Forbidden, InvalidRequest, KeyReused, LedgerCorrupt
from odometer_accountant.ledger.commands import DeriveCommand
from odometer_accountant.ledger.decisions import Decision, Replayed, admit
from odometer_accountant.ledger.entries import canonical, content
from odometer_accountant.ledger.state import State
from odometer_accountant.stores import Row

DEPTH_MAX: Final = 64
"""So many steps may lie between a charge and what was made of it."""


def derive(
    state: State, command: DeriveCommand, known: Row | None, parent: Row | None, time: str
) -> Decision:
    """Post-processing costs nothing, so this is for the record alone: no budget is asked, no total moves.

    A closed dataset takes it too: it says what came of what went out.
    """
    if known is not None:
        return _again(state, command, known)
    if command.refused is not None:
        raise command.refused
    if command.barred is not None:
        raise Forbidden(command.barred)
    depth = 1 + depth_of(state, command.parent, parent)
    if depth > DEPTH_MAX:
        raise InvalidRequest.of(
            "parent",
            f"entry {command.parent} is {DEPTH_MAX} steps away from the charge it comes of, which is the "
            "most: name an earlier one",
        )
    document = {
        "type": "derived",
        "time": time,
        "principal": command.principal,
        "key": command.key,
        "command": command.document,
        "depth": depth,
    }
    if command.by is not None:
        document["by"] = command.by
    return admit(state, document, command.ledger_key)


def depth_of(state: State, number: int, row: Row | None, field: str = "parent") -> int:
    """How many steps lie between a charge and this entry; 0 for a charge.

    Raises InvalidRequest about `field` for what let nothing out, LedgerCorrupt for what was changed.
    """
    name = state.dataset.name
    if row is None or not 0 < number <= state.head.sequence:
        raise InvalidRequest.of(
            field,
            f"dataset {name} has no entry {number}, it ends with {state.head.sequence}: "
            "a charge's receipt says its `sequence`",
        )
    entry = content(row, name)
    if entry["type"] == "derived":
        return int(entry["depth"])
    if is_release(entry):
        return 0
    hint = "name the entry of the charge that went out, or of what was made of it"
    if entry["type"] == "settled":
        hint = f"it settles hold {entry['hold']}: name that entry"
    raise InvalidRequest.of(field, f"entry {number} is of type {entry['type']} and let nothing out: {hint}")


def is_release(entry: dict[str, Any]) -> bool:
    """Whether something went out with an entry: it has a loss, and does not only say how much was used."""
    return "losses" in entry and entry["type"] != "settled"


def _again(state: State, command: DeriveCommand, known: Row) -> Decision:
    entry = content(known, state.stream)
    whose = (entry.get("by", entry.get("principal")), entry.get("key"))
    if whose != (command.by or command.principal, command.key):
        raise LedgerCorrupt(
            f"key {command.key!r} leads to entry {known.sequence}, which is not its own: "
            "nothing was recorded; run odometer verify",
            sequence=known.sequence,
        )
    same = entry["type"] == "derived" and entry["principal"] == command.principal
    if not same or canonical(entry["command"]) != canonical(command.document):
        raise KeyReused(
            f"key {command.key!r} was used for something else (entry {known.sequence}): "
            "nothing was recorded; use a new key for a new entry",
            sequence=known.sequence,
        )
    return Replayed(known, state)
