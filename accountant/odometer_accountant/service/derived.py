"""Records derived artefacts, and reads their lineage."""

import json
from collections.abc import Mapping
from typing import Any

from odometer_accountant.ledger.commands import (
    Caller,
    DeriveCommand,
)
from odometer_accountant.ledger.decisions import Admitted, Refused, Replayed
from odometer_accountant.queries.lineage import lineage
from odometer_accountant.requests.bodies import (
    Derived,
)
from odometer_accountant.requests.json_input import understood
from odometer_accountant.service.reader import StateReader
from odometer_accountant.service.request_checks import (
    Body,
    acting_for,
    barred,
    called,
    idempotency_key,
)


class DerivedArtefacts(StateReader):
    """Artefacts derived from releases: recorded, never charged."""

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
        """The sources of an entry, and the artefacts derived from it."""
        return lineage(self.store, self._looked_at(name), entry, after)
