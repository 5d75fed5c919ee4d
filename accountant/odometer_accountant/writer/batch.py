"""The parts of a batch: submitted commands, the plan for one stream, and the blobs that its commands need."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from odometer_accountant.errors import LedgerCorrupt, OdometerError
from odometer_accountant.ledger.commands import (
    ChargeCommand,
    Command,
    EndCommand,
    KeyedCommand,
    SettleCommand,
)
from odometer_accountant.ledger.decisions import Admitted, Decision
from odometer_accountant.ledger.entries import content
from odometer_accountant.ledger.entry_parts import affected_by, kinds_of
from odometer_accountant.ledger.state import State
from odometer_accountant.ledger.totals import Totals
from odometer_accountant.stores import NewEntry, Row, Write

Outcome = Decision | OdometerError


class ReplySink(Protocol):
    """Receives answers: called once per batch, from the writer's thread. It must not raise or wait."""

    def deliver(self, answers: Sequence[tuple[Any, Outcome]]) -> None: ...


@dataclass(frozen=True, slots=True)
class Submission:
    """A command for a stream, and the sink that receives its outcome together with `token`."""

    stream: str
    command: Command
    sink: ReplySink
    token: Any


@dataclass(frozen=True)
class Plan:
    """The outcomes of one stream's commands. `write` is None when there is nothing to append."""

    stream: str
    decisions: list[tuple[Submission, Outcome]]
    write: Write | None
    state: State | None
    """The state after the write."""


@dataclass
class Draft:
    """A stream's state while its commands are decided, and the entries to append so far."""

    state: State | None
    entries: list[NewEntry] = field(default_factory=list)

    def add(self, admitted: Admitted) -> None:
        """Continue from the state after this entry."""
        self.state = admitted.state
        self.entries.append(admitted.entry)


def ledger_keys(submissions: Iterable[Submission]) -> list[str]:
    """The idempotency keys of the commands that have one, as the ledger stores them."""
    return [each.command.ledger_key for each in submissions if isinstance(each.command, KeyedCommand)]


def blobs_needed(state: State, submissions: Iterable[Submission], named: Mapping[int, Row]) -> Iterable[str]:
    """The names of the count blobs that the commands change. `named`: the entries that commands refer to."""
    names: dict[str, None] = {}
    done: set[tuple[int, int]] = set()
    for submission in submissions:
        command = submission.command
        if isinstance(command, ChargeCommand):
            affected = command.affected
            same = (id(affected), id(command.prepared))  # one job repeats the same charge many times
            if same in done:
                continue
            done.add(same)
            scopes = state.scopes(affected, command.prepared.kinds)
        elif isinstance(command, SettleCommand) and command.hold in named:
            entry = _content_or_empty(named[command.hold], state.stream)
            if entry.get("type") != "held":
                continue
            scopes = state.scopes(affected_by(entry), kinds_of(entry))
        elif isinstance(command, EndCommand) and command.session in named:
            entry = _content_or_empty(named[command.session], state.stream)
            if "command" not in entry:
                continue
            scopes = state.scopes(affected_by(entry), ())
        else:
            continue
        names |= dict.fromkeys(state.blob_names(scopes))
    return names


def _content_or_empty(row: Row, stream: str) -> dict[str, Any]:
    """The content of an entry; empty for a damaged one, which the decision then reports."""
    try:
        return content(row, stream)
    except LedgerCorrupt:
        return {}


def replace_totals(state: State, totals: Totals) -> State:
    """The same state with other totals in view."""
    return state.moved(state.head, state.time, totals)
