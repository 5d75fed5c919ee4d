"""One stream's entries counted again, independently of what is stored beside them. For `verify`."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from odometer_accountant.errors import InvalidRequest, OdometerError
from odometer_accountant.ledger.active_budgets import ChargeContext, find_refusals
from odometer_accountant.ledger.checkpoints import CHECKPOINT_EVERY
from odometer_accountant.ledger.commands import end_key, settlement_key
from odometer_accountant.ledger.derived import is_release
from odometer_accountant.ledger.entries import FORMATS, entry_hash, entry_id
from odometer_accountant.ledger.entry_parts import affected_by, entry_losses
from odometer_accountant.ledger.findings import Finding, parting
from odometer_accountant.ledger.fold import apply, apply_charge
from odometer_accountant.ledger.holds import held_part
from odometer_accountant.ledger.sanitised import at_figure, check_sanitised
from odometer_accountant.ledger.state import State
from odometer_accountant.mechanisms.charge import Charge
from odometer_accountant.mechanisms.sessions import ANY_SESSION
from odometer_accountant.model import STORED, floats_to_text, text_to_floats
from odometer_accountant.numerics.grid import GRIDS, Grid
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.scopes import DATASET_SCOPE, holds_losses, shard_of
from odometer_accountant.stores import Head, Row
from odometer_accountant.verify.recount_sessions import OpenSessions

TOLERANCE: Final = 10**9
"""A recorded loss is below the recomputed one when it is so by more than a unit and a part in this many.

Another processor or library may round a curve's last digits up elsewhere; both are upper bounds.
"""
_CURVES_KEPT: Final = 4096


class Recount:
    """The fold of a stream's entries, which goes on after a fault and reports it.

    `lost` says why the sums no longer mean anything, "" while they do. Streams whose name starts with "~"
    hold no losses: of them only the chain is looked at.
    """

    def __init__(self, stream: str, report: Callable[[Finding], None]) -> None:
        self.sequence = 0
        self.hash = ""
        self.state: State | None = None
        self.lost = ""
        self._stream = stream
        self._report = report
        self._time = ""
        self._unlinked = False
        self._over: set[tuple[str, int, str]] = set()
        self._held: dict[int, dict[str, Any]] = {}
        self._sessions = OpenSessions(self._fault)
        self._keys: dict[str, int] = {}
        self._depths = bytearray()
        """A byte an entry: one more than its distance from a charge, 0 where nothing went out."""

    def take(self, row: Row) -> None:
        """The next entry, or a later one when those between are missing."""
        if row.sequence <= self.sequence:
            self._fault(f"stands twice, or out of order: after entry {self.sequence}", row.sequence)
            return
        if row.sequence > self.sequence + 1:
            self.skip(row.sequence - 1)
        if entry_hash(row.body) != row.hash:
            self._fault("its bytes do not have the hash that is stored with them", row.sequence)
        entry = self._read(row)
        if entry is not None:
            self._link(row, entry)
            self._time = max(self._time, str(entry.get("time")))
            if holds_losses(self._stream):
                self._fold(row, entry)
        self.sequence, self.hash, self._unlinked = row.sequence, row.hash, False

    def skip(self, last: int) -> None:
        """The entries up to `last` are not there."""
        first = self.sequence + 1
        which = f"entry {first} is" if first == last else f"entries {first} to {last} are"
        self._fault(f"{which} missing from the store, or damaged there", first)
        self._lose(f"{which} missing")
        self.sequence, self.hash, self._unlinked = last, "", True

    def take_keys(self) -> dict[str, int]:
        """The idempotency keys since last asked, as the store knows them, with their entries."""
        keys, self._keys = self._keys, {}
        return keys

    def _fault(self, what: str, at: int, scope: str | None = None, coordinate: str | None = None) -> None:
        self._report(Finding(self._stream, what, at, scope, coordinate))

    def _lose(self, why: str) -> None:
        self.lost = self.lost or why

    def _read(self, row: Row) -> dict[str, Any] | None:
        try:
            entry = json.loads(row.body)
            if isinstance(entry, dict):
                return entry
            why = "it is no JSON object"
        except (ValueError, RecursionError) as error:
            why = str(error)
        self._fault(f"cannot be read: {why}", row.sequence)
        self._lose(f"entry {row.sequence} cannot be read")
        return None

    def _link(self, row: Row, entry: Mapping[str, Any]) -> None:
        """That the entry follows the one before it."""
        at = row.sequence
        if entry.get("v") not in FORMATS:
            known = f"{', '.join(map(str, FORMATS[:-1]))} and {FORMATS[-1]}"
            self._fault(
                f"has format {entry.get('v')!r}; this version reads {known}: a later one is needed", at
            )
        if entry.get("seq") != at:
            self._fault(f"stands here, but says that it is entry {entry.get('seq')!r}", at)
        if entry.get("prev") != self.hash and not self._unlinked:
            named, real = str(entry.get("prev"))[:16], self.hash[:16]
            self._fault(f"does not follow the entry before it: names {named}…, that one has {real}…", at)
        if not isinstance(entry.get("time"), str):
            self._fault("has no time", at)
        elif entry["time"] < self._time:
            self._fault("its time lies before that of an earlier entry", at)

    def _fold(self, row: Row, entry: dict[str, Any]) -> None:
        try:
            if entry["type"] in ("charged", "held") and self.state is not None:
                self._charge(row, entry, self.state)
            else:
                if entry["type"] == "settled":
                    self._check_settlement(row.sequence, entry)
                elif entry["type"] == "session_closed":
                    self._check_end(row.sequence, entry)
                    self._sessions.ended(row.sequence, entry)
                elif entry["type"] == "carried" and self.state is not None:
                    self._sessions.carried(row.sequence, entry, self.state, self._held)
                elif entry["type"] == "derived":
                    self._check_descent(row.sequence, entry)
                self._other(row, entry)
            if is_release(entry):
                self._reach(row.sequence, 0)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OdometerError) as error:
            self._fault(f"cannot be applied: {error}", row.sequence)
            self._lose(f"entry {row.sequence} cannot be applied")

    def _other(self, row: Row, entry: Mapping[str, Any]) -> None:
        # The links were looked at above; here the entry is taken for what it says.
        before = self.state
        if before is not None:
            before = replace(before, head=Head(entry["seq"] - 1, entry["prev"]), time="")
        self.state = apply(before, entry_hash(row.body), row.body)
        if before is None and self.state.stream != self._stream:
            self._fault(f"opens a dataset called {self.state.stream!r}", row.sequence)

    def _charge(self, row: Row, entry: Mapping[str, Any], state: State) -> None:
        at, grid = row.sequence, state.dataset.grid
        items = entry["command"]["charges"]
        losses = entry_losses(grid, entry)
        if len(items) != len(losses):
            raise ValueError(f"{len(items)} charges but {len(losses)} losses")
        if state.closed:
            self._fault("charges a dataset that was closed", at)
        for number, (item, loss) in enumerate(zip(items, losses, strict=True), 1):
            self._check_loss(at, grid, number, item, loss)
        self._check_budgets(at, entry, state, losses)
        self._check_shard(at, entry, state)
        self._check_step(at, entry, state)
        self._sessions.charge(at, entry, state)
        self._check_key(f"{entry.get('by', entry['principal'])}/{entry['key']}", at)
        named = Head(at - 1, entry["prev"])
        # Of a sound ledger the state is taken as it is, with its compiled budgets.
        before = state if state.head == named else state.moved(named, state.time, state.totals)
        # The checkpoint is looked at here, so that a wrong one is a finding and not the end.
        moved = self._applied(before, Head(at, row.hash), entry)
        self._check_sum(at, entry, moved.spent)
        if entry["type"] == "held":
            self._held[at] = held_part(entry, lasting=True)
        self.state = moved if moved.time == self._time else replace_time(moved, self._time)

    def _applied(self, before: State, head: Head, entry: Mapping[str, Any]) -> State:
        """The state after a charge, whatever its checkpoint says."""
        if head.sequence % CHECKPOINT_EVERY:
            return apply_charge(before, head, entry)
        losses = entry_losses(before.dataset.grid, entry)
        spent = before.spent
        if DATASET_SCOPE in affected_by(entry).scopes(before.composition):
            for loss in losses:
                spent = spent.plus(loss)
        return apply_charge(before, head, {**entry, "totals": spent.encode()})

    def _check_step(self, at: int, entry: Mapping[str, Any], state: State) -> None:
        """That what a session charged is what its kind owes for that step, and that its last one is."""
        step = entry["command"].get("session")
        if step is None:
            return
        found = None if "open" in step else state.sessions.get(step["id"])
        if found is None and "open" not in step:
            return  # said when it is applied
        kind = ANY_SESSION.validate_python(
            text_to_floats(found.session if found else step["open"]), context=STORED
        )
        owed = [{"mechanism": one.mechanism.document(), "count": one.count} for one in kind.owed(step)]
        if entry["command"]["charges"] != floats_to_text(owed):
            self._fault(f"charges other things than a session of kind {kind.kind} owes", at)
        if found and step["last"] != (step["above"] and found.above + 1 == kind.most_above):
            called = entry_id(step["id"], found.mark)
            self._fault(f"is not the last answer of session {called} where it says so", at)

    def _check_end(self, at: int, entry: Mapping[str, Any]) -> None:
        """That a session which ended at no cost was in that run, with so many above answers."""
        number = entry["session"]
        self._check_key(end_key(number), at)
        found = self.state.sessions.get(number) if self.state else None
        if found is None:
            return  # said when it is applied
        kind = ANY_SESSION.validate_python(text_to_floats(found.session), context=STORED)
        above, called = found.above, entry_id(number, found.mark)
        if "run" in entry:
            above += 1
            if entry["run"] != found.run or above != kind.most_above or kind.above(last=True):
                self._fault(f"is not the last answer of session {called}, or not at no cost", at)
        if entry["above"] != above:
            self._fault(f"says {entry['above']} above answers of session {called}; there were {above}", at)

    def _check_settlement(self, at: int, entry: Mapping[str, Any]) -> None:
        """What it repeats of its hold, and that no more is given back than was not used."""
        number = entry["hold"]
        held = self._held.pop(number, None)
        if held is None:
            self._fault(f"settles hold {number}, which was not open", at)
        elif held_part(held, lasting="expires" in entry["held"]) != entry["held"]:
            self._fault(f"says other things of hold {number} than its entry", at)
        self._check_key(settlement_key(number), at)
        grid = self.state.dataset.grid if self.state else None
        items = entry["held"]["command"]["charges"]
        for place, (item, used) in enumerate(zip(items, entry["used"], strict=True), 1):
            if used > item["count"]:
                self._fault(f"says that {used} of {item['count']} held releases went out", at)
            if grid is not None and used:
                loss = entry_losses(grid, entry)[place - 1]
                figure = entry["sanitised"]["curves"][place - 1] if "sanitised" in entry else None
                self._check_loss(at, grid, place, {**item, "count": used}, loss, figure)
        if "sanitised" in entry:
            try:
                check_sanitised(entry["held"], entry["used"], entry["sanitised"])
            except InvalidRequest as error:
                self._fault(f"is settled at a figure that its hold does not pay for: {error}", at)

    def _check_descent(self, at: int, entry: Mapping[str, Any]) -> None:
        """That it comes of something that went out, and as many steps later as it says."""
        parent, depth = int(entry["command"]["parent"]), int(entry["depth"])
        before = self._depths[parent] if 0 < parent < len(self._depths) else 0
        if not before:
            self._fault(f"comes of entry {parent}, with which nothing went out", at)
        elif depth != before:
            self._fault(f"says that it is {depth} steps away from a charge; it is {before}", at)
        self._check_key(f"{entry.get('by', entry['principal'])}/{entry['key']}", at)
        self._reach(at, depth)

    def _reach(self, at: int, depth: int) -> None:
        self._depths.extend(bytes(at + 1 - len(self._depths)))
        self._depths[at] = min(depth + 1, 255)

    def _check_key(self, key: str, at: int) -> None:
        if key in self._keys:
            self._fault(f"has the idempotency key of entry {self._keys[key]}", at)
        self._keys[key] = at

    def _check_loss(
        self,
        at: int,
        grid: Grid,
        number: int,
        item: Mapping[str, Any],
        loss: Loss,
        figure: Mapping[str, Any] | None = None,
    ) -> None:
        which = f"charge {number} ({item['mechanism']['kind']})"
        try:
            true = _recomputed(grid.version, json.dumps(item, sort_keys=True))
        except ValueError as error:
            self._fault(f"{which} cannot be recomputed by this version: {error}", at)
            return
        if figure is not None:
            (true,) = at_figure(grid, [true], {"curves": [figure]})
        if loss != true and (differs := parting(loss, true, _below)):
            recorded, cost = differs.theirs, f"{differs.ours}{differs.also}"
            what = f"{which} has a loss of {recorded} recorded, its parameters cost {cost}"
            self._fault(what, at, coordinate=differs.where)

    def _check_sum(self, at: int, entry: Mapping[str, Any], spent: Loss) -> None:
        """The checkpoint, where there is one."""
        if at % CHECKPOINT_EVERY == 0 and entry.get("totals") != spent.encode():
            found = Loss.decode(spent.grid, str(entry.get("totals")))
            if differs := parting(found, spent):
                said, sums = differs.theirs, f"{differs.ours}{differs.also}"
                what = f"its checkpoint says {said}, the entries up to it add up to {sums}"
                self._fault(what, at, DATASET_SCOPE, differs.where)

    def _check_shard(self, at: int, entry: Mapping[str, Any], state: State) -> None:
        """That each unit is charged where its odometer is."""
        if state.composition == "by_unit":
            for unit in affected_by(entry).units:
                if (place := shard_of(unit, state.dataset.shards)) != state.shard:
                    self._fault(f"charges a unit that shard {place} keeps", at, f"unit/{unit}")

    def _check_budgets(self, at: int, entry: Mapping[str, Any], state: State, losses: Sequence[Loss]) -> None:
        """That every budget that was concerned allowed it, shares of teams included."""
        asked = Loss.zero(state.dataset.grid)
        for loss in losses:
            asked = asked.plus(loss)
        situation = ChargeContext(state.composition, state.partitions, state.totals, affected_by(entry))
        for one in find_refusals(state.limits, situation, asked, entry["time"]):
            over = (one.limit.filter.name, one.limit.entry.version, one.scope)
            if over not in self._over:
                self._over.add(over)  # those after it are over as well: say it once
                what = "kept it for other teams" if one.reserved else "did not allow it"
                self._fault(f"was admitted although budget {one.limit.filter.name} {what}", at, one.scope)


def replace_time(state: State, time: str) -> State:
    """The same state at another time: that of the entries so far, whatever the last one says."""
    return state.moved(state.head, time, state.totals)


def _below(recorded: Loss, true: Loss, index: int) -> bool:
    if recorded.unbounded[index] < true.unbounded[index]:
        return True
    bounded = not recorded.unbounded[index]
    value = true.values[index]
    return bounded and value - recorded.values[index] > 1 + value // TOLERANCE


@lru_cache(maxsize=_CURVES_KEPT)
def _recomputed(grid_version: int, item: str) -> Loss:
    """The loss of one charge as this version has it, from its document in the ledger. Raises ValueError."""
    charge = Charge.of_ledger(json.loads(item))
    return charge.loss(GRIDS[grid_version])
