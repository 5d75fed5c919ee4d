"""Reads sessions and builds the command for an answer. Reads only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from odometer_accountant.errors import KeyReused, LedgerCorrupt, UnknownSession
from odometer_accountant.ledger.commands import Caller, ChargeCommand, EndCommand
from odometer_accountant.ledger.entries import content, entry_id, row_at
from odometer_accountant.ledger.entry_parts import end_key
from odometer_accountant.ledger.prepared import PreparedCharge
from odometer_accountant.ledger.replay import own_entry
from odometer_accountant.ledger.session_state import Answer, Opening, SessionState
from odometer_accountant.ledger.sessions import check_kept, check_owner, check_run, session_of
from odometer_accountant.ledger.state import State
from odometer_accountant.mechanisms.charge import Charge
from odometer_accountant.mechanisms.sessions import ANY_SESSION, Session
from odometer_accountant.model import STORED, floats_to_text, text_to_floats
from odometer_accountant.requests import bodies
from odometer_accountant.requests.bodies import Group, SessionAnswer
from odometer_accountant.requests.json_input import understood
from odometer_accountant.service.request_checks import Body, idempotency_key, session_number
from odometer_accountant.stores import Store


def prepared_opening(body: Body | Mapping[str, Any]) -> PreparedCharge:
    """The charge that opens a session, from its request.

    Raises MalformedBody, InvalidRequest or BodyTooLarge.
    """
    request, refused = understood(bodies.OpenSession, body)
    return PreparedCharge(
        request.items,
        request.adjacency,
        group=request.group,
        partitions=request.partitions,
        units=request.units,
        on_behalf=request.principal,
        session=Opening(floats_to_text(request.session.document())),
        refused=refused,
    ).precompute()


KEPT_MAX: Final = 256
"""Datasets whose sessions are kept in memory between answers."""


class SessionCache:
    """A dataset's state, and those of its sessions that were asked for, as of one head of its ledger."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._known: dict[str, SessionRecord] = {}

    def known(self, store: Store, session: str) -> "SessionRecord":
        """By its id. Raises as `SessionRecord.read`."""
        found = self._known.get(session)
        if found is None:
            number, mark = session_number(self.state.dataset.name, session)
            found = SessionRecord.read(store, self.state, number, mark)
            if number in self.state.sessions:  # which bounds how many there are
                self._known[session] = found
        return found


@dataclass(frozen=True)
class SessionRecord:
    """A session, open or closed, by the entry that opened it."""

    dataset: str
    number: int
    mark: str
    hash: str
    entry: dict[str, Any]
    kind: Session

    @classmethod
    def read(cls, store: Store, state: State, number: int, mark: str) -> Self:
        """Raises UnknownSession where no entry of that hash opened one, LedgerCorrupt when it was changed."""
        name = state.dataset.name
        called = f"session {entry_id(number, mark)}"
        row = row_at(store, name, state.head, number)
        if row is None:
            raise UnknownSession(f"dataset {name} has no {called}")
        # Before the mark: an entry that is not the one that stood there is damage.
        entry, document = content(row, name), None
        if row.hash.startswith(mark) and entry["type"] == "charged":
            document = entry["command"].get("session", {}).get("open")
        if document is None:
            listed = state.sessions.get(number)
            if listed is not None and listed.mark == mark:
                raise LedgerCorrupt(
                    f"{called} of dataset {name} is listed as open, and its entry opens none: run odometer "
                    "verify",
                    sequence=number,
                )
            raise UnknownSession(f"dataset {name} has no {called}: that entry opens none of this id")
        kind = ANY_SESSION.validate_python(text_to_floats(document), context=STORED)
        return cls(name, number, mark, row.hash, entry, kind)

    @property
    def id(self) -> str:
        """How it is called."""
        return entry_id(self.number, self.hash)

    @property
    def opener(self) -> str:
        return str(self.entry.get("by", self.entry["principal"]))

    @property
    def opened(self) -> str:
        """When it was opened, as the ledger says."""
        return str(self.entry["time"])

    def owned(self, caller: Caller) -> None:
        """Raise Forbidden unless the caller may answer and close it."""
        check_owner(
            f"session {self.id} of dataset {self.dataset}", self.opener, caller.principal, admin=caller.admin
        )

    def _above_at_end(self, store: Store) -> int:
        """How many above answers a closed session had."""
        entry = self._end(store)
        # Without one it was closed by an answer that was charged: its last above one.
        return self.kind.most_above if entry is None else int(entry["above"])

    def _end(self, store: Store) -> dict[str, Any] | None:
        """The entry of its end, where that cost nothing. Raises LedgerCorrupt for another one."""
        name = end_key(self.number)
        row = store.find(self.dataset, [name]).get(name)
        return None if row is None else own_entry(row, self.dataset, name)

    def document(self, store: Store, state: State) -> dict[str, Any]:
        """As it is in `state`; of a closed one the store knows how it ended."""
        found = state.sessions.get(self.number)
        return {
            "session": {
                "id": self.id,
                "dataset": state.dataset.name,
                "session": self.kind.document(),
                "principal": self.entry["principal"],
                "by": self.entry.get("by"),
                "team": self.entry.get("team"),
                "group": self.entry["command"].get("group"),
                "partitions": self.entry["command"].get("partitions"),
                "time": self.entry["time"],
                "open": found is not None,
                "above": self._above_at_end(store) if found is None else found.above,
                "run": None if found is None else found.run,
                "above_left": 0 if found is None else self.kind.most_above - found.above,
            }
        }

    def answer(
        self, store: Store, state: State, wanted: SessionAnswer, key: str | None, caller: Caller
    ) -> ChargeCommand | EndCommand | None:
        """Builds the command for an answer; None when the answer is free.

        `state` must be read before: an answer that was admitted after it is found by its key.
        """
        self.owned(caller)
        if not (self.kind.above(last=False) if wanted.above else self.kind.below()):
            self._present(state, wanted, caller)
            return None
        once, principal = idempotency_key(key), self.entry["principal"]
        by = None if principal == caller.principal else caller.principal
        step = self._charged(store, f"{by or principal}/{once}", wanted)
        step = step or self._ended(store, state, once, wanted, caller)
        if step is None:
            found = self._present(state, wanted, caller)
            step = found.run, wanted.above and found.above + 1 == self.kind.most_above
        run, last = step
        charges = self.kind.above(last) if wanted.above else self.kind.below()
        if not charges:
            return EndCommand(self.number, self.mark, caller.principal, caller.admin, run, once, self.opened)
        answer = Answer(
            self.number, self.mark, wanted.above, run, last, caller.principal, caller.admin, self.opened
        )
        return ChargeCommand(self._prepared(charges, answer), principal, once, by, self.entry.get("team"))

    def _present(self, state: State, wanted: SessionAnswer, caller: Caller) -> SessionState:
        """The session as it is now, if it takes the answer."""
        found = session_of(state, self.number, self.mark, caller.principal, admin=caller.admin)
        check_kept(state, self.id, self.opened)
        if wanted.run is not None:
            check_run(state, self.id, found, wanted.run)
        return found

    def _charged(self, store: Store, ledger_key: str, wanted: SessionAnswer) -> tuple[int, bool] | None:
        """(run, last) of this very answer when it was charged before, by its key; None without an entry.

        Without a `run` the request alone does not say which run it ended: the entry does.
        """
        row = store.find(self.dataset, [ledger_key]).get(ledger_key)
        if row is None:
            return None
        entry = own_entry(row, self.dataset, ledger_key)
        step = entry.get("command", {}).get("session", {})
        if (step.get("id"), step.get("above")) != (self.number, wanted.above) or (
            wanted.run is not None and wanted.run != step["run"]
        ):
            raise KeyReused(
                f"key {ledger_key.partition('/')[2]!r} was used for something else (entry {row.sequence}): "
                "nothing was charged; use a new key for a new answer",
                sequence=row.sequence,
            )
        return int(step["run"]), bool(step["last"])

    def _ended(
        self, store: Store, state: State, key: str, wanted: SessionAnswer, caller: Caller
    ) -> tuple[int, bool] | None:
        """(run, last) of this very answer when it ended the session at no cost."""
        if self.number in state.sessions:
            return None
        entry = self._end(store) or {}
        whose = entry.get("principal"), entry.get("key")
        if not wanted.above or whose != (caller.principal, key) or wanted.run not in (None, entry["run"]):
            return None
        return int(entry["run"]), True

    def _prepared(self, charges: tuple[Charge, ...], answer: Answer) -> PreparedCharge:
        """On the scopes that were named at the opening."""
        command = self.entry["command"]
        parts, group = command.get("partitions"), command.get("group")
        return PreparedCharge(
            charges,
            None,
            group=None if group is None else Group.model_validate(group),
            partitions=parts if parts is None or parts == "all" else tuple(parts),
            session=answer,
        ).precompute()
