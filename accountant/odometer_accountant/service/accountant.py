"""The accountant's embedded face: documents in, documents out. The HTTP service is a thin layer over it."""

import json
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from odometer_accountant.budgets import ANY_BUDGET
from odometer_accountant.budgets.approximate import workload_loss
from odometer_accountant.budgets.base import LEAST_DELTA, Budget
from odometer_accountant.errors import (
    BodyTooLarge,
    BudgetExceeded,
    Forbidden,
    IfMatchRequired,
    InvalidRequest,
    LedgerCorrupt,
    LedgerRolledBack,
    NotFrozen,
    OdometerError,
    StoreUnavailable,
    TooMuchToCompute,
    UnknownBudget,
    UnknownHold,
)
from odometer_accountant.ledger.administration import etag
from odometer_accountant.ledger.charge_totals import open_holds
from odometer_accountant.ledger.charges import check_fits_dataset
from odometer_accountant.ledger.commands import (
    AddPartitionsCommand,
    Caller,
    ChargeCommand,
    CloseCommand,
    DeriveCommand,
    EndCommand,
    OpenCommand,
    SetBudgetCommand,
    SettleCommand,
    UnfreezeCommand,
)
from odometer_accountant.ledger.decide import frozen_error
from odometer_accountant.ledger.decisions import Admitted, Refused, Replayed
from odometer_accountant.ledger.entries import MARK, content, hold_id
from odometer_accountant.ledger.entry_parts import affected_by
from odometer_accountant.ledger.prepared import PreparedCharge
from odometer_accountant.ledger.sanitised import at_figure, check_sanitised
from odometer_accountant.ledger.state import State
from odometer_accountant.mechanisms import Mechanism
from odometer_accountant.model import floats_to_text
from odometer_accountant.numerics.grid import CURRENT_GRID, Grid
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.numerics.rounding import shown_down
from odometer_accountant.once import once
from odometer_accountant.queries import advice, history, holds, readings, receipts, warnings
from odometer_accountant.queries.convert import convert
from odometer_accountant.queries.lineage import lineage
from odometer_accountant.queries.scopes import never_charged
from odometer_accountant.requests.bodies import (
    CreateDataset,
    Derived,
    NewPartitions,
    SessionAnswer,
    Settlement,
    Unfreeze,
)
from odometer_accountant.requests.dp_events import convert_event
from odometer_accountant.requests.effort import at_most
from odometer_accountant.requests.json_input import read_json, understood, validated
from odometer_accountant.scopes import DATASET_SCOPE, shard_number, shard_parent, shard_stream, split
from odometer_accountant.service.reader import READS_MAX, StateReader
from odometer_accountant.service.request_checks import (
    Body,
    acting_for,
    barred,
    called,
    hold_number,
    idempotency_key,
    is_slug,
    mechanism_document,
    named_budget,
    page_limit,
    prepared_charge,
    scope_name,
    session_number,
    shard_of_units,
)
from odometer_accountant.service.sessions import KEPT_MAX, SessionCache, SessionRecord, prepared_opening
from odometer_accountant.writer.planner import Outcome


class Accountant(StateReader):
    """One ledger store and its writer. Safe to call from several threads.

    Every method takes and returns what the HTTP route of the same name does, and raises an
    `OdometerError`. Methods that change something name their principal.
    """

    @once
    def _kept(self) -> dict[str, SessionCache]:
        return {}

    # -- datasets and budgets

    def create_dataset(self, body: Body | Mapping[str, Any], principal: str) -> dict[str, Any]:
        request = validated(CreateDataset, body)
        _warm(CURRENT_GRID, request, *request.budgets)
        document = self._dataset_document(self._change(request.name, OpenCommand(request, principal)))
        said = warnings.notes(request)
        return document | {"notes": said} if said else document

    def dataset(self, name: str) -> dict[str, Any]:
        return self._dataset_document(self.state(name))

    def datasets(self, after: str = "", limit: int = 100) -> dict[str, Any]:
        """One page by name. A dataset that cannot be read is listed with its problem: it hides no other."""
        stored = self.store.streams(after, page_limit(limit) + 1)
        # A ledger that was there and is gone altogether is listed too, with its problem.
        seen = [name for name in self.writer.streams() if name > after]
        names = sorted({name for name in (*stored, *seen) if is_slug(name)})
        shown = names[:limit]
        return {
            "items": [self._listed(name) for name in shown],
            "next": shown[-1] if len(names) > limit else None,
        }

    def _listed(self, name: str) -> dict[str, Any]:
        try:
            return self.dataset(name)
        except (LedgerCorrupt, LedgerRolledBack) as error:
            problem = error.problem()
            return {"name": name, "problem": {part: problem[part] for part in ("type", "title", "detail")}}

    def budgets(self, name: str) -> dict[str, Any]:
        return {"items": self.dataset(name)["budgets"], "next": None}

    def add_budget(self, name: str, body: Body | Mapping[str, Any], principal: str) -> dict[str, Any]:
        grid = self.state(name).dataset.grid
        budget = validated(ANY_BUDGET, body)
        _warm(grid, budget)
        state = self._change(name, SetBudgetCommand(budget, principal))
        document = self._budget_state(state, budget.name)
        said = warnings.about_budget(self._as_of_now(state), budget)
        return document | {"warning": " ".join(said)} if said else document

    def change_budget(
        self,
        name: str,
        budget_name: str,
        body: Body | Mapping[str, Any],
        if_match: str | None,
        principal: str,
    ) -> dict[str, Any]:
        """A new limit keeps the weights; any other change fixes new ones (SOUNDNESS section 6)."""
        dataset = self.state(name)
        before = dataset.budgets.get(budget_name)
        if before is None:
            raise UnknownBudget(f"dataset {name} has no budget {budget_name[:80]}")
        if if_match is None:
            raise IfMatchRequired(
                "send If-Match with the budget's etag, so that no one else's change is lost",
                etag=etag(before),
            )
        budget = named_budget(body, budget_name, before.budget)
        _warm(dataset.dataset.grid, budget)
        state = self._change(name, SetBudgetCommand(budget, principal, if_match))
        document = self._budget_state(state, budget_name)
        change = warnings.changed(before.budget, state.budgets[budget_name], document["spent"])
        told = [change]
        if before.budget.reserved and budget.reserved is None:
            told.append("the teams' shares are gone: `reserved` was left out")
        told += warnings.about_budget(self._as_of_now(state), budget, change)
        if any(told):
            document["warning"] = " ".join(filter(None, told))
        return document

    def close_dataset(self, name: str, principal: str) -> dict[str, Any]:
        return self._dataset_document(self._change(name, CloseCommand(principal)))

    def add_partitions(self, name: str, body: Body | Mapping[str, Any], principal: str) -> dict[str, Any]:
        self.state(name)
        wanted = validated(NewPartitions, body)
        return self._dataset_document(self._change(name, AddPartitionsCommand(wanted.partitions, principal)))

    def unfreeze(self, name: str, body: Body | Mapping[str, Any], principal: str) -> dict[str, Any]:
        """Go on without what was lost. Raises NotFrozen when neither the dataset nor a shard is frozen."""
        self._looked_at(name)
        reason = validated(Unfreeze, body).reason
        frozen = self._frozen_streams(name)
        if not frozen:
            raise NotFrozen(f"dataset {name} is not frozen")
        for stream in frozen:
            self._change(stream, UnfreezeCommand(reason, principal))
        return self.dataset(name)

    # -- charges

    def charge(
        self, name: str, body: Body | Mapping[str, Any], key: str | None, by: Caller | str
    ) -> tuple[dict[str, Any], bool]:
        """(receipt, replayed). Nothing may be released before this returns."""
        return self._charge(name, self.checked(name, key, body, called(by)), key, by)

    def hold(
        self, name: str, body: Body | Mapping[str, Any], key: str | None, by: Caller | str
    ) -> tuple[dict[str, Any], bool]:
        """(receipt with the hold, replayed). What it holds is spent until it is settled for less."""
        return self._charge(name, self.checked(name, key, body, called(by), hold=True), key, by)

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
        """What to ask the writer, and of which stream. Raises Forbidden, SeveralShards, UnknownDataset."""
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
            question = advice.WhatIf(outcome.state, command.affected, outcome.at).within(advice.ADVICE_S)
            prepared = command.prepared.on(outcome.state.dataset.grid)
            notes = [*prepared.notes, *(() if advise else (advice.POSTPONED,))]
            nothing: dict[str, Any] = dict.fromkeys(advice.PARTS)
            error.fields = {
                **{name: value for name, value in error.fields.items() if name != "budgets"},
                "dataset": outcome.state.dataset.name,
                "refusals": advice.refusals(question, prepared.loss) if advise else [],
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
        fitting, notes = question.fits(prepared.loss), list(prepared.notes)
        extra = prepared.loss if fitting else None
        return {
            "fits": fitting and not state.closed,
            "left": receipts.left(state, command.affected, question.time, extra),
            "refusals": advice.refusals(question, prepared.loss),
            "would_fit": advice.would_fit(question.within(advice.ADVICE_S), prepared, notes),
            **({"notes": notes} if notes else {}),
        }

    def _as_charged(self, name: str, stream: str, command: ChargeCommand) -> State:
        """The state that a charge would be judged on, with every count that it needs."""
        dataset = self.state(name)
        names = dataset.blob_names(dataset.scopes(command.affected, command.prepared.kinds))
        if stream == name:
            return self._with(stream, names) or dataset
        return self._shard(dataset, stream, names)

    # -- holds

    def settle(
        self, name: str, hold: str, body: Body | Mapping[str, Any], by: Caller | str
    ) -> tuple[dict[str, Any], bool]:
        """(what the settlement says, replayed): a hold is charged for what was used of it, once."""
        dataset = self._bound(name) if is_slug(name) else self.state(name).dataset
        caller, (wanted, refused) = called(by), understood(Settlement, body)
        shard, number, mark = hold_number(name, hold, dataset.shards)
        stream = name if shard is None else shard_stream(name, shard)
        try:
            held = holds.read(self.store, stream, name, number, mark)
        except UnknownHold as error:
            self._not_lost(stream)
            raise UnknownHold(f"dataset {name} has no hold {hold}") from error
        used = (wanted.used,) if isinstance(wanted.used, int) else wanted.used
        losses = holds.used_losses(dataset.grid, held, used)
        sanitised = floats_to_text(wanted.sanitised.model_dump(mode="json")) if wanted.sanitised else None
        if sanitised is not None:
            check_sanitised(held, used, sanitised)
            losses = at_figure(dataset.grid, losses, sanitised)
        command = SettleCommand(
            number, used, losses, caller.principal, caller.admin, mark, sanitised, refused
        )
        outcome = self._wait(stream, command)
        if isinstance(outcome, Admitted | Replayed):
            replayed = isinstance(outcome, Replayed)
            head = outcome.row if isinstance(outcome, Replayed) else outcome.state.head
            affected = affected_by(held)
            state = outcome.state
            document = {
                "dataset": name,
                "hold": hold,
                "sequence": head.sequence,
                "hash": head.hash,
                "used": list(used),
                "held": [item["count"] for item in held["command"]["charges"]],
                "replayed": replayed,
                "left": receipts.left(state, affected, state.time),
            }
            return document, replayed
        raise outcome.error if isinstance(outcome, Refused) else outcome

    def holds(self, name: str) -> dict[str, Any]:
        """The holds that can still be settled, and what they come to: part of what counts as spent."""
        now = self.clock()
        items = [item for state in self._streams_of(name) for item in holds.documents(self.store, state, now)]
        return {"items": items, "next": None}

    # -- sessions

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

    # -- what was made of a release

    def derive(
        self, name: str, body: Body | Mapping[str, Any], key: str | None, by: Caller | str
    ) -> tuple[dict[str, Any], bool]:
        """(receipt, replayed): record what was made of a release. Nothing is charged."""
        once, caller = idempotency_key(key), called(by)
        self._looked_at(name)
        wanted, refused = understood(Derived, body)
        principal = acting_for(caller, wanted.principal)
        asked_by = None if principal == caller.principal else caller.principal
        said = barred(caller, principal)
        command = DeriveCommand(wanted.parent, wanted.description, principal, once, asked_by, refused, said)
        outcome = self._wait(name, command)
        if not isinstance(outcome, Admitted | Replayed):
            raise outcome.error if isinstance(outcome, Refused) else outcome
        row = outcome.row if isinstance(outcome, Replayed) else outcome.entry
        entry = json.loads(row.body)
        document = {
            "dataset": name,
            "sequence": entry["seq"],
            "hash": row.hash,
            "time": entry["time"],
            "principal": entry["principal"],
            **({"by": entry["by"]} if "by" in entry else {}),
            **entry["command"],
            "depth": entry["depth"],
            "replayed": isinstance(outcome, Replayed),
        }
        return document, document["replayed"]

    def lineage(self, name: str, entry: int, after: int = 0) -> dict[str, Any]:
        """What an entry comes of, and what was made of it."""
        return lineage(self.store, self._looked_at(name), entry, after)

    # -- readings

    def odometer(self, name: str, delta: float | None = None, scope: str | None = None) -> dict[str, Any]:
        if delta is not None and not LEAST_DELTA <= delta < 1:
            raise InvalidRequest(
                f"delta: must be above 0 and below 1, got {delta}",
                errors=[{"field": "delta", "message": "must be above 0 and below 1"}],
            )
        state, spent = self._scope(name, scope)
        now = max(state.time, self.clock())
        held = holds.held(self.store, state, scope, now)
        note = (
            never_charged(self.store, state, scope)
            if scope and scope != "dataset" and spent.is_zero
            else None
        )
        return {
            "dataset": name,
            "scope": scope or "dataset",
            "known": note is None,
            **({"notes": [note]} if note else {}),
            "sequence": state.head.sequence,
            "time": state.time,
            "delta": float(state.dataset.delta) if delta is None else delta,
            "readings": [
                reading.document()
                for reading in readings.readings(state, spent, delta, scope or DATASET_SCOPE)
            ],
            "totals": readings.loss_document(spent),
            "held": readings.loss_document(held),
            "budgets": self._with_held(state, now),
            "left": receipts.left_of(state, scope, now) if scope and scope != "dataset" else [],
        }

    def _with_held(self, state: State, now: str) -> list[dict[str, Any]]:
        """The budgets, each with how much of what is spent would come back if no open hold were used."""
        budgets = self._budget_states(state)
        unused = self._budget_states(holds.unused(self.store, state, now))
        for budget, without in zip(budgets, unused, strict=True):
            known = budget["spent"] is not None and without["spent"] is not None
            budget["held"] = max(0.0, budget["spent"] - without["spent"]) if known else None
        return budgets

    def _scope(self, name: str, scope: str | None) -> tuple[State, Loss]:
        """A dataset and what one of its scopes has lost."""
        state = self.state(name)
        if scope is None or scope == "dataset":
            return _as_a_whole(state, "scope"), readings.whole(state)
        kind, item = split(scope_name(scope, state))
        names = state.blob_names([scope])
        if kind == "unit":
            stream = shard_stream(name, shard_of_units((item,), state.dataset.shards))
            part = self._shard(state, stream, names)
        else:
            part = self._with(name, names) or state
        if part.frozen is not None:
            raise frozen_error(part)
        spent = part.totals.of(scope)
        return part, part.spent.plus(spent) if kind == "partition" else spent

    def scopes(self, name: str, kind: str, after: str = "", limit: int = 100) -> dict[str, Any]:
        """One page of the scopes of a kind, each with what it has lost."""
        state = self.state(name)
        if kind == "unit" or state.composition == "by_unit":
            raise InvalidRequest(
                "kind: units are not listed; ask for the odometer of one",
                errors=[{"field": "kind", "message": "units are not listed"}],
            )
        for _ in range(READS_MAX):
            found = history.scopes(self.store, state, kind, after, page_limit(limit), self.clock())
            if found is not None:
                return found
            state = self.state(name)
        raise StoreUnavailable(f"{name} moved on each time it was read: ask again")

    def history(self, name: str, points: int = 200) -> dict[str, Any]:
        state = _as_a_whole(self.state(name), "dataset")
        return {"points": history.series(self.store, state, min(max(points, 2), 1000))}

    def spend(self, name: str) -> dict[str, Any]:
        return history.spend(self.store, _as_a_whole(self.state(name), "dataset"))

    def ledger(
        self,
        name: str,
        after: int = 0,
        limit: int = 100,
        before: int | None = None,
        newest_first: bool = False,
    ) -> dict[str, Any]:
        return history.page(self.store, self._looked_at(name), after, page_limit(limit), before, newest_first)

    # -- stateless

    @staticmethod
    def mechanisms() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(_mechanisms())
        return found

    @staticmethod
    def convert(body: Body | Mapping[str, Any]) -> dict[str, Any]:
        return convert(body)

    @staticmethod
    def dp_events(body: Body | Mapping[str, Any]) -> dict[str, Any]:
        """The charges of an event of dp_accounting. Raises InvalidRequest for what is not known."""
        return convert_event(body)

    # -- inside

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

    def _dataset_document(self, state: State) -> dict[str, Any]:
        dataset = state.dataset
        return {
            "name": dataset.name,
            "unit": dataset.unit,
            "adjacency": dataset.adjacency.value,
            "delta": float(dataset.delta),
            "delta_add": shown_down(int(dataset.delta_add), dataset.grid.units_in_one[dataset.grid.delta]),
            "grid_version": dataset.grid_version,
            "created": dataset.created,
            "sequence": state.head.sequence,
            "closed": state.closed,
            "odometer_only": dataset.odometer_only and not any(not limit.window for limit in state.limits),
            "composition": dataset.composition,
            "partitions": list(state.partitions),
            "shards": dataset.shards,
            "frozen": state.frozen is not None,
            "frozen_shards": self._frozen_shards(state),
            "open_holds": self._open_holds(state),
            "budgets": self._budget_states(state),
        }

    def _open_holds(self, state: State) -> int | None:
        """How many; None by unit, whose holds are in the shards: they are counted when they are listed."""
        if state.dataset.shards:
            return None
        return len(open_holds(state.holds, max(state.time, self.clock())))

    def _frozen_shards(self, state: State) -> list[int]:
        if not state.dataset.shards:
            return []
        frozen = self.writer.counts.frozen_streams()
        return sorted(shard_number(one) for one in frozen if shard_parent(one) == state.dataset.name)

    def _as_of_now(self, state: State) -> State:
        """As a charge would find it now: of a window that is over, nothing is spent."""
        return state.moved(state.head, max(state.time, self.clock()), state.totals)

    def _budget_states(self, state: State) -> list[dict[str, Any]]:
        now = self._as_of_now(state)
        return [readings.budget_state(now, limit, etag(limit.entry)) for limit in state.limits]

    def _budget_state(self, state: State, budget_name: str) -> dict[str, Any]:
        return next(item for item in self._budget_states(state) if item["name"] == budget_name)


@cache
def _mechanisms() -> str:
    """As JSON: the schemas of all kinds take long to make, and stay as they are."""
    items = [mechanism_document(kind) for kind in Mechanism.registry.values()]
    return json.dumps({"items": items, "next": None})


def _as_a_whole(state: State, field: str) -> State:
    """The state, unless it is by unit: then it has no count of its own. Raises InvalidRequest for `field`."""
    if state.composition == "by_unit":
        raise InvalidRequest(
            f"{field}: dataset {state.dataset.name} composes by_unit and has no odometer as a whole: ask for "
            "that of a unit, odometer?scope=unit/…",
            errors=[{"field": field, "message": "has no odometer as a whole; ask for that of a unit"}],
        )
    return state


def _warm(grid: Grid, *documents: CreateDataset | Budget) -> None:
    """Compute here what a decision needs of the workloads: the writer, which all wait for, never does."""
    for document in documents:
        workload = getattr(document, "workload", None)
        if workload is not None:
            workload_loss(workload, grid)
