"""Checks of a charge or a hold: its losses, budgets, shard, session and checkpoint. For `verify`."""

from collections.abc import Sequence

from odometer_accountant.ledger.active_budgets import ChargeContext, find_refusals
from odometer_accountant.ledger.charges import apply_charge
from odometer_accountant.ledger.checkpoints import is_checkpoint
from odometer_accountant.ledger.entry_parts import Entry, affected_by, entry_losses
from odometer_accountant.ledger.findings import first_difference
from odometer_accountant.ledger.holds import held_part
from odometer_accountant.ledger.state import State
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.scopes import DATASET_SCOPE, shard_of
from odometer_accountant.stores import Head
from odometer_accountant.verify.losses import check_loss
from odometer_accountant.verify.memory import Memory
from odometer_accountant.verify.sessions import check_open_counted, check_step


def check_charge(memory: Memory, at: int, entry: Entry, state: State) -> None:
    """Report a charge whose losses are too low, or that its dataset should have refused."""
    grid = state.dataset.grid
    items, losses = entry["command"]["charges"], entry_losses(grid, entry)
    if len(items) != len(losses):
        raise ValueError(f"{len(items)} charges but {len(losses)} losses")
    if state.closed:
        memory.fault("charges a dataset that was closed", at)
    for number, (item, loss) in enumerate(zip(items, losses, strict=True), 1):
        check_loss(memory, at, grid, number, item, loss)
    _check_budgets(memory, at, entry, state, losses)
    _check_shard(memory, at, entry, state)
    check_step(memory, at, entry, state)
    check_open_counted(memory, at, entry, state)
    memory.check_caller_key(entry, at)


def counted_charge(memory: Memory, head: Head, entry: Entry, state: State) -> State:
    """The state after a charge, whatever its checkpoint states: a wrong one is a finding, not the end."""
    named = Head(head.sequence - 1, entry["prev"])
    # Where the links hold, the state is taken as it is, with its compiled budgets.
    before = state if state.head == named else state.moved(named, state.time, state.totals)
    if not is_checkpoint(head.sequence):
        after = apply_charge(before, head, entry)
    else:
        spent = _sum(before, entry)
        after = apply_charge(before, head, {**entry, "totals": spent.encode()})
        _check_sum(memory, head.sequence, entry, after.spent)
    if entry["type"] == "held":
        memory.held[head.sequence] = held_part(entry, lasting=True)
    return after


def _sum(before: State, entry: Entry) -> Loss:
    """The dataset's total after a charge, added up loss by loss."""
    spent = before.spent
    if DATASET_SCOPE in affected_by(entry).scopes(before.composition):
        for loss in entry_losses(before.dataset.grid, entry):
            spent = spent.plus(loss)
    return spent


def _check_sum(memory: Memory, at: int, entry: Entry, spent: Loss) -> None:
    if entry.get("totals") != spent.encode():
        found = Loss.decode(spent.grid, str(entry.get("totals")))
        if differs := first_difference(found, spent):
            said, sums = differs.theirs, f"{differs.ours}{differs.also}"
            what = f"its checkpoint says {said}, the entries up to it add up to {sums}"
            memory.fault(what, at, DATASET_SCOPE, differs.where)


def _check_shard(memory: Memory, at: int, entry: Entry, state: State) -> None:
    """Report a unit that is charged in another shard than its own."""
    if state.composition == "by_unit":
        for unit in affected_by(entry).units:
            if (place := shard_of(unit, state.dataset.shards)) != state.shard:
                memory.fault(f"charges a unit that shard {place} keeps", at, f"unit/{unit}")


def _check_budgets(memory: Memory, at: int, entry: Entry, state: State, losses: Sequence[Loss]) -> None:
    """Report each budget that did not allow the charge, shares of teams included. Each is reported once."""
    asked = Loss.zero(state.dataset.grid)
    for loss in losses:
        asked = asked.plus(loss)
    context = ChargeContext(state.composition, state.partitions, state.totals, affected_by(entry))
    for one in find_refusals(state.limits, context, asked, entry["time"]):
        over = (one.limit.filter.name, one.limit.entry.version, one.scope)
        if over not in memory.over:
            memory.over.add(over)
            what = "kept it for other teams" if one.reserved else "did not allow it"
            memory.fault(f"was admitted although budget {one.limit.filter.name} {what}", at, one.scope)
