"""Charges a dataset: from the request to its receipt or refusal."""

import json
import math
from collections.abc import Mapping
from typing import Any

from odometer_accountant.errors import (
    BodyTooLarge,
    BudgetExceeded,
    Forbidden,
    InvalidRequest,
    OdometerError,
    TooMuchToCompute,
)
from odometer_accountant.ledger.charge_checks import check_fits_dataset
from odometer_accountant.ledger.commands import (
    Caller,
    ChargeCommand,
)
from odometer_accountant.ledger.decide import frozen_error
from odometer_accountant.ledger.decisions import Admitted, Refused, Replayed
from odometer_accountant.ledger.entries import content, hold_id
from odometer_accountant.ledger.prepared import PreparedCharge
from odometer_accountant.ledger.state import State
from odometer_accountant.queries import advice, receipts
from odometer_accountant.requests.effort import at_most
from odometer_accountant.requests.json_input import read_json
from odometer_accountant.scopes import shard_stream
from odometer_accountant.service.reader import StateReader
from odometer_accountant.service.request_checks import (
    Body,
    acting_for,
    barred,
    called,
    idempotency_key,
    is_slug,
    prepared_charge,
    shard_of_units,
)
from odometer_accountant.writer.batch import Outcome


class Charges(StateReader):
    """Charges and dry runs."""

    def charge(
        self, name: str, body: Body | Mapping[str, Any], key: str | None, by: Caller | str
    ) -> tuple[dict[str, Any], bool]:
        """(receipt, replayed). Nothing may be released before this returns."""
        return self._charge(name, self.checked(name, key, body, called(by)), key, by)

    def checked(
        self, name: str, key: str | None, body: Body | Mapping[str, Any], by: Caller, *, hold: bool = False
    ) -> PreparedCharge:
        """A request, once name and key are such that it can be decided."""
        once = idempotency_key(key)
        self.known_dataset(name)
        return self.prepare(name, body, hold=hold, once=(once, by))

    def _charge(
        self, name: str, prepared: PreparedCharge, key: str | None, by: Caller | str
    ) -> tuple[dict[str, Any], bool]:
        stream, command = self.command(name, prepared, idempotency_key(key), called(by))
        document, replayed = self.receipt(self._wait(stream, command), command)
        return json.loads(document), replayed

    def command(
        self, name: str, prepared: PreparedCharge, key: str, caller: Caller
    ) -> tuple[str, ChargeCommand]:
        """The command for the writer, and its stream. Raises Forbidden, SeveralShards, UnknownDataset."""
        principal = acting_for(caller, prepared.on_behalf)
        by = None if principal == caller.principal else caller.principal
        said = barred(caller, principal)
        command = ChargeCommand(prepared, principal, key, by, caller.team, said)
        return self.stream_for(name, prepared), command

    def stream_for(self, name: str, prepared: PreparedCharge) -> str:
        """The stream that a charge goes to: the dataset's own, or the shard that keeps its units."""
        if prepared.units is None:
            return name
        shards = self._bound(name).shards
        return name if not shards else shard_stream(name, shard_of_units(prepared.units, shards))

    def receipt(self, outcome: Outcome, command: ChargeCommand) -> tuple[bytes, bool]:
        """The receipt of a writer's outcome as JSON, and whether it is a replay; raises the refusal."""
        prepared, replayed = command.prepared, isinstance(outcome, Replayed)
        if isinstance(outcome, Admitted):
            state = outcome.state
            about: dict[str, Any] = {
                "sequence": state.head.sequence,
                "hash": state.head.hash,
                "time": state.time,
            }
            expires = state.holds.get(state.head.sequence) if prepared.expires_in_s else None
        elif isinstance(outcome, Replayed):
            state, row = outcome.state, outcome.row
            entry = content(row, state.stream)
            about = {"sequence": row.sequence, "hash": row.hash, "time": entry["time"]}
            expires = entry.get("expires")
        else:
            raise self.refusal(outcome, command)
        if command.by is not None:
            about["by"] = command.by
        if state.shard is not None:
            about["shard"] = state.shard
        if expires is not None:
            about["hold"] = {"id": hold_id(state.shard, about["sequence"], about["hash"]), "expires": expires}
        fixed = receipts.fragment_of(prepared.on(state.dataset.grid))
        document = receipts.receipt(
            state, about, command.principal, fixed, command.affected, replayed=replayed
        )
        return document, replayed

    def refusal(self, outcome: Outcome, command: ChargeCommand, *, advise: bool = True) -> OdometerError:
        """The error to raise; a refusal says what is short and what would fit. May take 0.2 s.

        Without `advise` it says neither, but at once: that it was refused does not wait for why.
        """
        error = outcome.error if isinstance(outcome, Refused) else outcome
        if isinstance(error, BudgetExceeded) and isinstance(outcome, Refused) and outcome.state is not None:
            prepared = command.prepared.on(outcome.state.dataset.grid)
            question = advice.WhatIf(outcome.state, command.affected, outcome.at)
            question = question.within(advice.ADVICE_S, refused=prepared.loss)
            notes = [*prepared.notes, *(() if advise else (advice.POSTPONED,))]
            nothing: dict[str, Any] = dict.fromkeys(advice.PARTS)
            found = question.shown(prepared.loss, outcome.budgets) if advise else []
            error.fields = {
                **{name: value for name, value in error.fields.items() if name != "budgets"},
                "dataset": outcome.state.dataset.name,
                "refusals": advice.refusals(question, prepared.loss, found) if advise else [],
                "would_fit": advice.would_fit(question, prepared, notes) if advise else nothing,
                "notes": notes,
            }
        if not isinstance(error, OdometerError):
            raise TypeError(f"not a refusal: {outcome!r}")
        return error

    def check(self, name: str, body: Body | Mapping[str, Any], by: Caller | str = "anyone") -> dict[str, Any]:
        """Would it fit, what would be left, what is the most that fits. Changes nothing."""
        self.state(name)
        prepared = self.prepare(name, body)
        prepared.check_valid()
        stream, command = self.command(name, prepared, "check", called(by))
        if command.barred is not None:
            raise Forbidden(command.barred)
        state = self._as_charged(name, stream, command)
        if state.frozen is not None:  # a shard alone, whose counts are too low
            raise frozen_error(state)
        check_fits_dataset(state, prepared)
        prepared = prepared.on(state.dataset.grid)
        question = advice.WhatIf(state, command.affected, max(state.time, self.clock()))
        found, notes = question.find_refusals(prepared.loss, advice.SCOPES_SHOWN), list(prepared.notes)
        fitting = not found
        refused = None if fitting else prepared.loss
        extra = prepared.loss if fitting else None
        return {
            "fits": fitting and not state.closed,
            "left": receipts.left(state, command.affected, question.time, extra),
            "refusals": advice.refusals(question, prepared.loss, found),
            "would_fit": advice.would_fit(question.within(advice.ADVICE_S, refused), prepared, notes),
            **({"notes": notes} if notes else {}),
        }

    def _as_charged(self, name: str, stream: str, command: ChargeCommand) -> State:
        """The state that a charge would be judged on, with every count that it needs."""
        dataset = self.state(name)
        names = dataset.blob_names(dataset.scopes(command.affected, command.prepared.kinds))
        if stream == name:
            return self._with(stream, names) or dataset
        return self._shard(dataset, stream, names)

    def prepare(
        self,
        name: str,
        body: Body | Mapping[str, Any],
        *,
        hold: bool = False,
        once: tuple[str, Caller] | None = None,
    ) -> PreparedCharge:
        """A charge request for a dataset, parsed and warmed; a dataset that is unknown is said first.

        What was admitted `once`, under a key of a caller, is answered again however much it is to compute.
        """
        try:
            return prepared_charge(body, hold=hold)
        except TooMuchToCompute:
            self.state(name)
            if once is None or not self._was_charged(name, body, *once):
                raise
        except (BodyTooLarge, InvalidRequest):
            self.state(name)
            raise
        with at_most(math.inf):
            return prepared_charge(body, hold=hold)

    def _was_charged(self, name: str, body: Body | Mapping[str, Any], key: str, caller: Caller) -> bool:
        """Whether a caller's key is in the ledger that the request goes to."""
        document = read_json(body) if isinstance(body, bytes) else body
        units, shards = document.get("units"), self._bound(name).shards
        stream = name
        if shards:
            if not isinstance(units, list) or not all(isinstance(unit, str) for unit in units) or not units:
                return False
            stream = shard_stream(name, shard_of_units(units, shards))
        return bool(self.store.find(stream, [f"{caller.principal}/{key}"]))

    def known_dataset(self, name: str) -> None:
        """Raise UnknownDataset, or LedgerRolledBack, unless a dataset can be charged. Read once."""
        if not is_slug(name):
            raise self.unknown(name)
        self._bound(name)
