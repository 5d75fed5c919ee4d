"""Records of artefacts derived from a release: the decision, and the fold of their entry `derived`. Pure."""

from dataclasses import replace
from typing import Final

from odometer_accountant.errors import Forbidden, InvalidRequest, KeyReused
from odometer_accountant.ledger.commands import DeriveCommand
from odometer_accountant.ledger.decisions import Decision, DecisionInput, admit, decides
from odometer_accountant.ledger.entries import canonical, content
from odometer_accountant.ledger.entry_parts import Entry, caller_key
from odometer_accountant.ledger.entry_types import entry_type, is_release
from odometer_accountant.ledger.replay import replay
from odometer_accountant.ledger.state import State
from odometer_accountant.stores import Head, Row

DEPTH_MAX: Final = 64
"""The most steps between a charge and an artefact derived from it."""


@decides(DeriveCommand)
def derive(state: State, command: DeriveCommand, given: DecisionInput) -> Decision:
    """Record a derived artefact. Post-processing costs nothing: no budget is asked, no total changes.

    A closed dataset takes the record too: it only documents an earlier release.
    """
    if given.known is not None:
        row = given.known
        return replay(state, command, row, lambda entry: _check_same(command, row, entry))
    if command.refused is not None:
        raise command.refused
    if command.barred is not None:
        raise Forbidden(command.barred)
    depth = 1 + depth_of(state, command.parent, given.named)
    if depth > DEPTH_MAX:
        raise InvalidRequest.of(
            "parent",
            f"entry {command.parent} is {DEPTH_MAX} steps away from the charge it comes of, which is the "
            "most: name an earlier one",
        )
    document = {
        "type": "derived",
        "time": given.time,
        "principal": command.principal,
        "key": command.key,
        "command": command.document,
        "depth": depth,
    }
    if command.by is not None:
        document["by"] = command.by
    return admit(state, document, command.ledger_key)


def _check_same(command: DeriveCommand, known: Row, entry: Entry) -> None:
    """Raise KeyReused unless the entry `known` is the same record."""
    same = entry["type"] == "derived" and entry["principal"] == command.principal
    if not same or canonical(entry["command"]) != canonical(command.document):
        raise KeyReused(
            f"key {command.key!r} was used for something else (entry {known.sequence}): "
            "nothing was recorded; use a new key for a new entry",
            sequence=known.sequence,
        )


@entry_type("derived", key=caller_key)
def _derived(state: State, head: Head, entry: Entry) -> State:
    if not 0 < int(entry["command"]["parent"]) < head.sequence:
        raise ValueError("it comes of no earlier entry")
    return replace(state, head=head, time=entry["time"])


def depth_of(state: State, number: int, row: Row | None, field: str = "parent") -> int:
    """The number of steps between a charge and this entry; 0 for a charge.

    Raises InvalidRequest about `field` for an entry that released nothing, LedgerCorrupt for a changed one.
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
