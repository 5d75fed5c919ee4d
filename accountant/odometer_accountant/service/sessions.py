"""Opens, answers and closes sessions of interactive mechanisms."""

import json
from collections.abc import Mapping
from typing import Any, cast

from odometer_accountant.errors import (
    BodyTooLarge,
    InvalidRequest,
)
from odometer_accountant.ledger.commands import (
    Caller,
    ChargeCommand,
    EndCommand,
)
from odometer_accountant.ledger.decisions import Admitted, Refused, Replayed
from odometer_accountant.ledger.entries import MARK
from odometer_accountant.ledger.state import State
from odometer_accountant.once import once
from odometer_accountant.requests.bodies import (
    SessionAnswer,
)
from odometer_accountant.requests.json_input import validated
from odometer_accountant.service.charges import Charges
from odometer_accountant.service.request_checks import (
    Body,
    called,
    idempotency_key,
    is_slug,
    session_number,
)
from odometer_accountant.service.session_records import (
    KEPT_MAX,
    SessionCache,
    SessionRecord,
    prepared_opening,
)


class Sessions(Charges):
    """Sessions of interactive mechanisms."""

    @once
    def _kept(self) -> dict[str, SessionCache]:
        return {}

    def open_session(
        self, name: str, body: Body | Mapping[str, Any], key: str | None, by: Caller | str
    ) -> tuple[dict[str, Any], bool]:
        """(the session with the receipt of its first step, replayed)."""
        if not is_slug(name):
            raise self.unknown(name)
        once = idempotency_key(key)
        try:
            prepared = prepared_opening(body)
        except (BodyTooLarge, InvalidRequest):
            self.state(name)
            raise
        _, command = self.command(name, prepared, once, called(by))
        outcome, receipt, replayed = self._paid(name, command)
        number, mark = receipt["sequence"], receipt["hash"][:MARK]
        session = SessionRecord.read(self.store, outcome.state, number, mark)
        return self._reply(session, outcome.state, receipt, replayed)

    def answer_session(
        self, name: str, session: str, body: Body | Mapping[str, Any], key: str | None, by: Caller | str
    ) -> tuple[dict[str, Any], bool]:
        """(the session after an answer, replayed): what the next step costs is charged. Free below answers
        change nothing, and need no key. Nothing that a refused answer asked for may go out.
        """
        caller = called(by)
        state, known = self._session(name, session)
        wanted = validated(SessionAnswer, body)
        command = known.answer(self.store, state, wanted, key, caller)
        if command is None:
            return self._reply(known, state, None, replayed=False)
        if isinstance(command, EndCommand):
            return self._ended(name, command, known)
        outcome, receipt, replayed = self._paid(name, command)
        return self._reply(known, outcome.state, receipt, replayed)

    def close_session(self, name: str, session: str, by: Caller | str) -> tuple[dict[str, Any], bool]:
        """(the session, replayed): it takes no more answers. What was paid stays paid."""
        state, caller = self.state(name), called(by)
        known = SessionRecord.read(self.store, state, *session_number(name, session))
        known.owned(caller)
        if known.number not in state.sessions:
            return self._reply(known, state, None, replayed=True)
        command = EndCommand(known.number, known.mark, caller.principal, caller.admin)
        return self._ended(name, command, known)

    def sessions(self, name: str) -> dict[str, Any]:
        """The open sessions, oldest first."""
        state = self.state(name)
        found = (
            SessionRecord.read(self.store, state, number, one.mark) for number, one in state.sessions.items()
        )
        return {"items": [known.document(self.store, state)["session"] for known in found], "next": None}

    def session(self, name: str, session: str) -> dict[str, Any]:
        """One session, open or closed."""
        state = self.state(name)
        known = SessionRecord.read(self.store, state, *session_number(name, session))
        document: dict[str, Any] = known.document(self.store, state)["session"]
        return document

    def _reply(
        self, known: SessionRecord, state: State, receipt: Mapping[str, Any] | None, replayed: bool
    ) -> tuple[dict[str, Any], bool]:
        """(the session as it is in `state`, with the receipt of its last charge; replayed)."""
        return known.document(self.store, state) | {"receipt": receipt, "replayed": replayed}, replayed

    def _session(self, name: str, session: str) -> tuple[State, SessionRecord]:
        """A session and its dataset as it is now. Both are kept until the ledger moves on: free answers come
        by the million, and reading all anew for each costs a hundred times what comparing the heads does.
        """
        kept = self._kept.get(name)
        if kept is None or not self._unmoved(kept.state):
            kept = SessionCache(self.state(name))
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept[name] = kept
        return kept.state, kept.known(self.store, session)

    def _paid(self, name: str, command: ChargeCommand) -> tuple[Admitted | Replayed, dict[str, Any], bool]:
        outcome = self._wait(name, command)
        document, replayed = self.receipt(outcome, command)
        return cast(Admitted | Replayed, outcome), json.loads(document), replayed

    def _ended(self, name: str, command: EndCommand, known: SessionRecord) -> tuple[dict[str, Any], bool]:
        outcome = self._wait(name, command)
        if not isinstance(outcome, Admitted | Replayed):
            raise outcome.error if isinstance(outcome, Refused) else outcome
        replayed = isinstance(outcome, Replayed)
        return self._reply(known, outcome.state, None, replayed)
