"""Checks of settlements: each repeats its hold, and gives back only the unused part. For `verify`."""

from odometer_accountant.errors import InvalidRequest
from odometer_accountant.ledger.entry_parts import Entry, entry_losses, settlement_key
from odometer_accountant.ledger.holds import held_part
from odometer_accountant.ledger.sanitised import check_sanitised
from odometer_accountant.ledger.state import State
from odometer_accountant.verify.losses import check_loss
from odometer_accountant.verify.memory import Memory


def check_settlement(memory: Memory, at: int, entry: Entry, state: State) -> None:
    """Report a settlement that differs from its hold, or whose losses are too low for what was used."""
    number = entry["hold"]
    held = memory.held.pop(number, None)
    if held is None:
        memory.fault(f"settles hold {number}, which was not open", at)
    elif held_part(held, lasting="expires" in entry["held"]) != entry["held"]:
        memory.fault(f"says other things of hold {number} than its entry", at)
    memory.check_key(settlement_key(number), at)
    grid = state.dataset.grid
    items = entry["held"]["command"]["charges"]
    for place, (item, used) in enumerate(zip(items, entry["used"], strict=True), 1):
        if used > item["count"]:
            memory.fault(f"says that {used} of {item['count']} held releases went out", at)
        if used:
            loss = entry_losses(grid, entry)[place - 1]
            figure = entry["sanitised"]["curves"][place - 1] if "sanitised" in entry else None
            check_loss(memory, at, grid, place, {**item, "count": used}, loss, figure)
    if "sanitised" in entry:
        try:
            check_sanitised(entry["held"], entry["used"], entry["sanitised"])
        except InvalidRequest as error:
            memory.fault(f"is settled at a figure that its hold does not pay for: {error}", at)
