"""Stateless conversion: what charges would cost as a plan fixed in advance."""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from odometer_accountant.budgets.base import Delta
from odometer_accountant.budgets.coordinate import root_up
from odometer_accountant.errors import NotValidUnderAdjacency
from odometer_accountant.mechanisms import Adjacency, AnyMechanism, Model, Number, Whole
from odometer_accountant.mechanisms.charge import COUNT_MAX, ITEMS_MAX, Charge
from odometer_accountant.numerics import conversions
from odometer_accountant.numerics.grid import CURRENT_GRID
from odometer_accountant.numerics.loss import Loss, total
from odometer_accountant.queries.advice import finite
from odometer_accountant.queries.reading import Reading, loss_document
from odometer_accountant.queries.readings import plan_readings
from odometer_accountant.requests.json_input import validated

_FIXED = "Only if every charge and the moment of stopping were fixed in advance."


class ConvertRequest(Model):
    """Charges, and the δ (or the ε) at which to read them."""

    mechanism: AnyMechanism | None = None
    """One mechanism, with its count; or use charges."""
    count: Annotated[Whole, Field(ge=1, le=COUNT_MAX)] | None = None
    """How many times the mechanism runs."""
    charges: Annotated[tuple[Charge, ...], Field(min_length=1, max_length=ITEMS_MAX)] | None = None
    """A list of charges."""
    adjacency: Adjacency | None = None
    """When given, mechanisms that are not valid under it are refused."""
    delta: Delta | None = None
    """Read ε at this δ, 0 < δ < 1."""
    epsilon: Annotated[Number, Field(ge=0, le=1e6)] | None = None
    """Or read δ at this ε, in nats."""

    @model_validator(mode="after")
    def _one_question(self) -> Self:
        if (self.mechanism is None) == (self.charges is None):
            raise ValueError("give either mechanism with count, or charges")
        if (self.mechanism is None) != (self.count is None):
            raise ValueError("count goes with mechanism, and is needed with it")
        if (self.delta is None) == (self.epsilon is None):
            raise ValueError("give exactly one of delta and epsilon")
        return self

    def all_charges(self) -> tuple[Charge, ...]:
        """The charges, whichever way they were given."""
        if self.mechanism is not None and self.count is not None:
            return (Charge(mechanism=self.mechanism, count=self.count),)
        return self.charges or ()


def convert(body: bytes | Mapping[str, Any]) -> dict[str, Any]:
    """The readings of the charges as a plan, and their totals. Raises InvalidRequest."""
    request = validated(ConvertRequest, body)
    charges = request.all_charges()
    for charge in charges:
        invalid = charge.mechanism.first_invalid(request.adjacency) if request.adjacency else None
        if request.adjacency is not None and invalid is not None:
            raise NotValidUnderAdjacency(
                f"{invalid.kind} under {request.adjacency.value}: {invalid.instead()}"
            )
    loss = total(CURRENT_GRID, (charge.loss(CURRENT_GRID) for charge in charges))
    if request.delta is not None:
        found = [*plan_readings(loss, request.delta), *_epsilons(loss, request.delta)]
    else:
        found = list(_deltas(loss, request.epsilon or 0.0))
    notes = [note for charge in charges for note in charge.mechanism.notes()]
    return {
        "readings": [reading.document() for reading in found],
        "totals": loss_document(loss),
        **({"notes": notes} if notes else {}),
    }


def _epsilons(loss: Loss, delta: float) -> Iterator[Reading]:
    """Epsilon by the notions that have their own conversion; none holds with approximate charges."""
    grid = loss.grid
    if loss.units(grid.delta) != 0:
        return
    epsilon = conversions.zcdp_epsilon(loss.amount(grid.rho), delta)
    yield Reading("zcdp", "epsilon", finite(epsilon), delta, f"From rho, over all real orders. {_FIXED}")
    mu_squared = loss.amount(grid.mu_squared)
    if math.isfinite(mu_squared):
        mu = root_up(mu_squared)
        exact = conversions.gdp_epsilon(mu, delta)
        yield Reading("gdp", "epsilon", finite(exact), delta, f"From mu: exact for Gaussians. {_FIXED}")


def _deltas(loss: Loss, epsilon: float) -> Iterator[Reading]:
    grid = loss.grid
    added = loss.amount(grid.delta)
    value, best = conversions.rdp_delta(loss.renyi(), grid.orders, epsilon)
    if loss.amount(grid.pure) <= epsilon:
        value = 0.0
    order = float(grid.orders[best])
    yield Reading(
        "fixed_plan", "delta", min(1.0, value + added), None, f"At epsilon {epsilon:g}. {_FIXED}", order
    )
    if added == 0:
        zcdp = conversions.zcdp_delta(loss.amount(grid.rho), epsilon)
        yield Reading("zcdp", "delta", zcdp, None, f"From rho, over all real orders. {_FIXED}")
        mu_squared = loss.amount(grid.mu_squared)
        if math.isfinite(mu_squared):
            mu = root_up(mu_squared)
            gdp = conversions.gdp_delta(mu, epsilon)
            yield Reading("gdp", "delta", gdp, None, f"From mu: exact for Gaussians. {_FIXED}")
