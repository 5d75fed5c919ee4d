"""Charges ahead of the work, and settles such a hold for what was used."""

from collections.abc import Mapping
from typing import Any

from odometer_accountant.errors import (
    UnknownHold,
)
from odometer_accountant.ledger.commands import (
    Caller,
    SettleCommand,
)
from odometer_accountant.ledger.decisions import Admitted, Refused, Replayed
from odometer_accountant.ledger.entry_parts import affected_by
from odometer_accountant.ledger.sanitised import at_figure, check_sanitised
from odometer_accountant.model import floats_to_text
from odometer_accountant.queries import holds, receipts
from odometer_accountant.requests.bodies import (
    Settlement,
)
from odometer_accountant.requests.json_input import understood
from odometer_accountant.scopes import shard_stream
from odometer_accountant.service.charges import Charges
from odometer_accountant.service.request_checks import (
    Body,
    called,
    hold_number,
    is_slug,
)


class Holds(Charges):
    """Holds and their settlements."""

    def hold(
        self, name: str, body: Body | Mapping[str, Any], key: str | None, by: Caller | str
    ) -> tuple[dict[str, Any], bool]:
        """(receipt with the hold, replayed). What it holds is spent until it is settled for less."""
        return self._charge(name, self.checked(name, key, body, called(by), hold=True), key, by)

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
