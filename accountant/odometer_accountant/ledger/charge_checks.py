"""Checks whether a dataset can take a charge at all: adjacency, partitions, units, size."""

from typing import Final

from odometer_accountant.errors import (
    InvalidRequest,
    NotValidUnderAdjacency,
)
from odometer_accountant.ledger.active_budgets import most_counts
from odometer_accountant.ledger.prepared import PreparedCharge
from odometer_accountant.ledger.session_state import Opening
from odometer_accountant.ledger.state import State
from odometer_accountant.mechanisms import Adjacency
from odometer_accountant.mechanisms.base import MONOTONE, NONE_MONOTONE
from odometer_accountant.scopes import shard_of

COUNTS_MAX: Final = 8192
"""Counts that one charge may move, over all budgets: 1024 partitions, or 1000 units, under eight of them."""


def check_fits_dataset(state: State, prepared: PreparedCharge) -> None:
    """Raise InvalidRequest or NotValidUnderAdjacency unless the dataset can take such a charge at all."""
    check_adjacency(state, prepared)
    composition = state.composition
    if (composition == "by_partition") != (prepared.partitions is not None):
        raise InvalidRequest.of(
            "partitions",
            f"dataset {state.dataset.name} composes {composition}: "
            + ("say which partitions are read, or all" if composition == "by_partition" else "it has none"),
        )
    if (composition == "by_unit") != (prepared.units is not None):
        raise InvalidRequest.of(
            "units",
            f"dataset {state.dataset.name} composes {composition}: "
            + ("say whose data it is" if composition == "by_unit" else "leave the units out"),
        )
    if prepared.partitions is not None and prepared.partitions != "all":
        unknown = [name for name in prepared.partitions if name not in state.partitions]
        if unknown:
            raise InvalidRequest.of(
                "partitions",
                f"dataset {state.dataset.name} has no partition {unknown[0]}: an admin adds it first, it is "
                "never created on the fly",
            )
    if composition == "by_unit":
        _check_units(state, prepared)
    _check_breadth(state, prepared)


def _check_breadth(state: State, prepared: PreparedCharge) -> None:
    """Every other dataset waits while a charge is judged: what one may ask for has a bound."""
    affected = prepared.affected("", None)
    counts = most_counts(state.limits, state.composition, state.partitions, affected)
    if counts > COUNTS_MAX:
        field = "units" if state.composition == "by_unit" else "partitions"
        asked = len(getattr(affected, field) or state.partitions)
        raise InvalidRequest.of(
            field,
            f"{asked} {field} under the {len(state.limits)} budgets of dataset {state.dataset.name} are "
            f"{counts} counts to judge, and one charge may have {COUNTS_MAX}: name fewer {field} at once",
        )


def _check_units(state: State, prepared: PreparedCharge) -> None:
    if prepared.group is not None:
        raise InvalidRequest.of("group", "a dataset that composes by_unit has no groups")
    for unit in prepared.units or ():
        if shard_of(unit, state.dataset.shards) != state.shard:
            raise InvalidRequest.of("units", f"{unit} is not kept in shard {state.shard}")


def check_computed_for(state: State, prepared: PreparedCharge) -> None:
    """Raise NotValidUnderAdjacency where the charge says that it was computed for another adjacency."""
    dataset = state.dataset
    if prepared.adjacency is not None and prepared.adjacency != dataset.adjacency:
        raise NotValidUnderAdjacency(
            f"the charge was computed for {prepared.adjacency.value}, dataset {dataset.name} has "
            f"{dataset.adjacency.value}: restate the noise over the sensitivity under that "
            "(a clip norm C moves a sum by C under add_remove and zero_out, by 2C under replace_one)",
            adjacency=dataset.adjacency.value,
        )


def check_adjacency(state: State, prepared: PreparedCharge) -> None:
    """Raise NotValidUnderAdjacency unless every mechanism's analysis holds for this dataset."""
    dataset = state.dataset
    check_computed_for(state, prepared)
    opening = prepared.session.session if isinstance(prepared.session, Opening) else {}
    if opening.get(MONOTONE) and dataset.adjacency is Adjacency.replace_one:
        raise NotValidUnderAdjacency(
            f"the queries of {opening['kind']} are said to be monotone, and dataset {dataset.name} has "
            f"adjacency {dataset.adjacency.value}: {NONE_MONOTONE}",
            adjacency=dataset.adjacency.value,
            valid_under=sorted(one.value for one in Adjacency if one is not dataset.adjacency),
        )
    if dataset.adjacency in prepared.adjacencies:
        return
    for index, charge in enumerate(prepared.charges):
        invalid = charge.mechanism.first_invalid(dataset.adjacency)
        if invalid is not None:
            valid = ", ".join(sorted(invalid.analysed_under()))
            raise NotValidUnderAdjacency(
                f"{invalid.kind} (charge {index + 1}) is analysed under {valid}, dataset {dataset.name} "
                f"has adjacency {dataset.adjacency.value}: {invalid.instead()}",
                adjacency=dataset.adjacency.value,
                valid_under=sorted(invalid.analysed_under()),
            )
