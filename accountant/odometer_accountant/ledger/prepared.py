"""A charge request, parsed, with everything that does not depend on the dataset's state."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self

from pydantic import TypeAdapter

from odometer_accountant.errors import InvalidRequest
from odometer_accountant.ledger.entries import canonical
from odometer_accountant.ledger.session_state import Answer, Opening
from odometer_accountant.mechanisms import Adjacency
from odometer_accountant.mechanisms.base import EVERY_ADJACENCY
from odometer_accountant.mechanisms.charge import Charge
from odometer_accountant.model import floats_to_text
from odometer_accountant.numerics.curve import Curve
from odometer_accountant.numerics.grid import CURRENT_GRID, Grid
from odometer_accountant.numerics.loss import Loss, total
from odometer_accountant.once import once
from odometer_accountant.requests.bodies import (
    Group,
    ManyCharges,
    ManyHolds,
    OneCharge,
    OneHold,
)
from odometer_accountant.requests.json_input import understood
from odometer_accountant.scopes import AffectedScopes

_ONE: TypeAdapter[OneCharge] = TypeAdapter(OneCharge)


_MANY: TypeAdapter[ManyCharges] = TypeAdapter(ManyCharges)


_ONE_HOLD: TypeAdapter[OneHold] = TypeAdapter(OneHold)


_MANY_HOLDS: TypeAdapter[ManyHolds] = TypeAdapter(ManyHolds)


def prepare(body: bytes, decoded: Any, *, hold: bool = False) -> "PreparedCharge":
    """A charge request from its JSON bytes, which are also given decoded; with `hold` that of a hold.

    Raises InvalidRequest whose fields are those of the form that was meant (one, or a list). What only a rule
    of today refuses is prepared nevertheless, and `refused`: an old charge may be asked for again.
    """
    many = isinstance(decoded, Mapping) and "charges" in decoded
    form: TypeAdapter[Any] = (_MANY_HOLDS if many else _ONE_HOLD) if hold else (_MANY if many else _ONE)
    request, refused = understood(form, body, decoded)
    group = request.group
    charges = request.items
    if group is not None:
        charges = tuple(item.model_copy(update={"count": item.count * group.runs}) for item in charges)
    return PreparedCharge(
        charges,
        request.adjacency,
        group=group,
        partitions=request.partitions,
        units=request.units,
        on_behalf=request.principal,
        expires_in_s=request.expires_in_s if hold else None,
        refused=refused,
    )


@dataclass(frozen=True)
class PreparedCharge:
    """A charge request, parsed, with everything about it that does not depend on the dataset's state."""

    charges: tuple[Charge, ...]
    """Their counts are those of all runs."""
    adjacency: Adjacency | None
    grid: Grid = CURRENT_GRID
    group: Group | None = None
    partitions: Literal["all"] | tuple[str, ...] | None = None
    units: tuple[str, ...] | None = None
    on_behalf: str | None = None
    expires_in_s: int | None = None
    """Only for a hold: its time to live, in seconds."""
    session: Opening | Answer | None = None
    """The step of a session that it is, if it is one."""
    refused: InvalidRequest | None = field(default=None, compare=False)
    """Why a new charge is refused, by a rule that is younger than some charges of the ledger."""
    _on: dict[int, "PreparedCharge"] = field(default_factory=dict, compare=False, repr=False)
    """The same charge in the units of other grids, by version."""
    _affected: dict[tuple[str, str | None], AffectedScopes] = field(
        default_factory=dict, compare=False, repr=False
    )

    @once
    def curves(self) -> tuple[Curve, ...]:
        """The curve of one release of each charge. May take seconds."""
        return tuple(charge.mechanism.curve(self.grid) for charge in self.charges)

    @once
    def losses(self) -> tuple[Loss, ...]:
        """The loss of each charge."""
        return tuple(
            curve.times(charge.count) for curve, charge in zip(self.curves, self.charges, strict=True)
        )

    def on(self, grid: Grid) -> "PreparedCharge":
        """The same charge in the units of another grid. Fast: its curves are not computed again."""
        if grid is self.grid:
            return self
        known = self._on.get(grid.version)
        if known is None:
            known = replace(self, grid=grid, _on={})
            known.__dict__["curves"] = tuple(curve.on(grid) for curve in self.curves)
            self._on[grid.version] = known.precompute()
        return known

    @once
    def loss(self) -> Loss:
        """The sum of the losses."""
        return self.losses[0] if len(self.losses) == 1 else total(self.grid, self.losses)

    @once
    def kinds(self) -> list[str]:
        return [charge.mechanism.kind for charge in self.charges]

    @once
    def notes(self) -> list[str]:
        """Notes for the caller on how this is charged."""
        return [note for charge in self.charges for note in charge.mechanism.notes()]

    @once
    def documents(self) -> list[dict[str, Any]]:
        """The charges as they were given, without defaults; the counts are those of all runs."""
        return [{"mechanism": charge.mechanism.document(), "count": charge.count} for charge in self.charges]

    @once
    def command(self) -> str:
        """The command as the ledger holds it: canonical JSON."""
        document: dict[str, Any] = {"charges": floats_to_text(self.documents)}
        if self.group is not None:
            document["group"] = self.group.model_dump()
        if self.partitions is not None:
            document["partitions"] = floats_to_text(self.partitions)
        if self.units is not None:
            document["units"] = list(self.units)
        if self.expires_in_s is not None:
            document["expires_in_s"] = self.expires_in_s
        if self.session is not None:
            document["session"] = self.session.document
        return canonical(document).decode()

    @once
    def losses_json(self) -> str:
        return json.dumps([loss.encode() for loss in self.losses], separators=(",", ":"))

    @once
    def adjacencies(self) -> frozenset[Adjacency]:
        """The adjacencies under which every mechanism of the charge is valid."""
        return EVERY_ADJACENCY.intersection(*(charge.mechanism.valid_under() for charge in self.charges))

    def affected(self, principal: str, team: str | None) -> AffectedScopes:
        """The scopes that it charges when `principal` of `team` sends it."""
        known = self._affected.get((principal, team))
        if known is None:
            named = self.partitions if isinstance(self.partitions, tuple) else ()
            group = self.group.name if self.group else None
            known = AffectedScopes(principal, team, group, named, self.units or ())
            if len(self._affected) >= _AFFECTED_MAX:
                self._affected.clear()
            self._affected[principal, team] = known
        return known

    def check_valid(self) -> None:
        """Raise InvalidRequest for a charge that is no longer accepted. Call after the key was looked up."""
        if self.refused is not None:  # a new error each time: the prepared charge is cached
            raise InvalidRequest(self.refused.detail, **self.refused.fields)

    def precompute(self) -> Self:
        """Compute everything that a decision needs, so that the writer never has to."""
        _ = self.loss, self.kinds, self.command, self.losses_json, self.adjacencies
        return self


_AFFECTED_MAX: Final = 16
