"""What a training job is about to do, checked before its first step: adjacency, constants, what fits."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from odometer_client.base import UnsupportedPlan
from odometer_client.client import Client
from odometer_client.mechanism import Mechanism
from odometer_client.sweeps import Sweep

log: Final = logging.getLogger("odometer_client")
Adjacency = Literal["add_remove", "zero_out"]
_EXAMPLE: Final = {"sample_rate": 0.1, "expected_batch_size": 64}


@dataclass(frozen=True)
class Stated:
    """Constants that the caller states; None where not."""

    sample_rate: float | None
    expected_batch_size: float | None

    @property
    def whole(self) -> bool:
        return self.sample_rate is not None and self.expected_batch_size is not None

    def check(self, adjacency: Adjacency, rate: float, divisor: float | None, ranks: int) -> None:
        """That they are what is used. Raises UnsupportedPlan.

        divisor: of this rank's gradient, None where the gradient is not divided.
        """
        if adjacency == "add_remove" and (self.sample_rate is None or self._divisor_missing(divisor)):
            raise UnsupportedPlan(how_to_add_remove("the dataset", self, divided=divisor is not None))
        # What is used may come of the number of rows: it is not said where that is private.
        public = adjacency == "zero_out"
        if self.sample_rate is not None and rate != self.sample_rate:
            used = f"draws at {rate!r}" if public else "draws at another rate"
            raise UnsupportedPlan(f"the sampler {used}, and the stated sample_rate is {self.sample_rate!r}")
        stated = self.expected_batch_size
        if stated is not None and divisor is not None and float(divisor) != stated / ranks:
            used = f"divides by {divisor!r}" if public else "divides by another number"
            raise UnsupportedPlan(
                f"the optimizer {used}, and the stated expected_batch_size is {stated!r}"
                + (f" for {ranks} ranks" if ranks > 1 else "")
            )

    def _divisor_missing(self, divisor: float | None) -> bool:
        return divisor is not None and self.expected_batch_size is None


def how_to_add_remove(dataset: str, stated: Stated, *, divided: bool) -> str:
    """What to write for a dataset of that adjacency.

    The example's numbers come from nothing of the job: the rate and the divisor that Opacus has computed
    would tell the number of rows to whoever reads the log.
    """
    given = {"sample_rate": stated.sample_rate}
    if divided:
        given["expected_batch_size"] = stated.expected_batch_size
    missing = [name for name, value in given.items() if value is None]
    lines = "".join(
        f"    {name}={_EXAMPLE[name] if value is None else value!r},\n" for name, value in given.items()
    )
    constants = "two constants" if divided else "a constant"
    lacks = f" ({' and '.join(missing)} missing)" if missing else ", without adjacency='zero_out'"
    return (
        f"{dataset} is add_remove, where the number of rows is private: the rate, the divisor and the "
        f"number of steps may not be computed from it. State {constants} to BudgetedPrivacyEngine{lacks}, "
        f"numbers of your own, not from len(loader), such as\n{lines}"
        "or use a dataset opened as zero_out, where the number of rows is public"
    )


def agreed_adjacency(
    client: Client | None,
    dataset: str,
    wanted: Adjacency | None,
    stated: Stated,
    *,
    divided: bool,
) -> Adjacency:
    """The adjacency to charge under: the dataset's, if the job is sound under it.

    `divided`: whether the sum of the gradients is. Raises UnsupportedPlan, and what reading a dataset does.
    """
    if wanted not in ("add_remove", "zero_out", None):
        raise ValueError(f"adjacency is {wanted!r}: give 'zero_out' or 'add_remove'")
    if client is None:
        raise ValueError("rank 0 charges: give it a client")
    found = client.dataset(dataset).adjacency
    if found == "add_remove" and wanted != "zero_out" and stated.whole:
        return "add_remove"
    if found == "add_remove" and wanted != "zero_out" and stated.sample_rate is not None and not divided:
        return "add_remove"  # a sum is not divided
    if found == "add_remove":
        raise UnsupportedPlan(how_to_add_remove(f"dataset {dataset!r}", stated, divided=divided))
    if found == "replace_one":
        raise UnsupportedPlan(
            f"dataset {dataset!r} is replace_one, under which Poisson sampling amplifies otherwise: open the "
            "dataset as zero_out"
        )
    if wanted == "add_remove":
        raise UnsupportedPlan(
            f"dataset {dataset!r} is zero_out: leave adjacency out, the job's steps are valid under that, too"
        )
    return "zero_out"


@dataclass(frozen=True)
class Plan:
    """What fitted when the job was made private. Others may charge in between."""

    mechanism: Mechanism
    """The first step."""
    steps: int | None
    """How many the job means to take; None where that is not known."""
    fits: bool
    """Whether those (or a first one) fit."""
    largest_count: int
    """How many steps fit."""
    least_noise: float | None
    """The noise multiplier with which all planned steps would fit, None where none does."""

    def __str__(self) -> str:
        if self.steps is None:
            return f"{self.largest_count} steps fit"
        if self.fits:
            return f"all {self.steps} planned steps fit, up to {self.largest_count} do"
        more = (
            f"; noise_multiplier={self.least_noise!r} would make all of them fit" if self.least_noise else ""
        )
        return f"{self.largest_count} of {self.steps} planned steps fit{more}"


def planned(
    client: Client | None,
    dataset: str,
    mechanism: Mechanism,
    steps: int | None,
    adjacency: Adjacency,
    sweep: Sweep | None,
) -> Plan:
    """Ask what fits, and say so in the log. Charges nothing. Raises what `Client.check` does."""
    if sweep is not None:
        count = sweep.count_of(mechanism.document())
        return Plan(mechanism, steps, (steps or 1) <= count, count, None)
    if client is None:
        raise ValueError("rank 0 charges: give it a client")
    check = client.check(dataset, mechanism, steps or 1, adjacency=adjacency)
    most = check.would_fit.get("largest_count")
    plan = Plan(
        mechanism,
        steps,
        check.fits,
        int(most) if isinstance(most, int) else int(check.fits),
        _noise(check.would_fit.get("least_noise")),
    )
    log.log(logging.INFO if plan.fits else logging.WARNING, "dataset %s: %s", dataset, plan)
    return plan


def _noise(document: Any) -> float | None:
    base = document.get("base") if isinstance(document, Mapping) else None
    noise = base.get("noise_multiplier") if isinstance(base, Mapping) else None
    return None if noise is None else float(noise)
