"""Random training loops against the Opacus guard: what is charged is at least what happened, or nothing left.

`guard_model` (in tests/support) holds the programs, and the oracle, which shares nothing with the guard.
"""

import logging
import math
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from guard_model import plants
from guard_model.jobs import Ledger, Setup
from guard_model.oracle import Oracle
from guard_model.programs import Op, Program, program, shrunk
from guard_model.runner import Outcome, Plant, run
from guard_model.truth import ORDERS, divergence
from guard_model.world import World

from odometer_client import Client

PROGRAMS = int(os.environ.get("GUARD_MODEL_PROGRAMS", "300"))
"""`make long` sets 10,000."""
IN_ONE_LEDGER = 500
"""Programs that share a ledger in memory."""

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::UserWarning"
    ),  # Opacus's and torch's: what a program does is often odd
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@dataclass
class Ledgers:
    """A ledger for every so many programs."""

    used: int = 0
    client: Ledger | None = None

    def __call__(self, program: Program, plant: Plant | None = None) -> Outcome:
        if self.client is None or self.used % IN_ONE_LEDGER == 0:
            self.close()
            self.client = Ledger()
        self.used += 1
        return run(program, self.client, plant)

    def close(self) -> None:
        if self.client is not None:
            self.client.close()


@pytest.fixture
def outcome_of() -> Iterator[Ledgers]:
    ledgers = Ledgers()
    yield ledgers
    ledgers.close()


def test_every_program_is_charged_at_least_the_truth(
    outcome_of: Ledgers, capsys: pytest.CaptureFixture[str]
) -> None:
    """No release leaves for less than it costs, and plain loops are let through and charged exactly."""
    totals: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    plain_whole = 0
    faulty = []
    for seed in range(PROGRAMS):
        outcome = outcome_of(program(seed))
        totals.update(programs=1, plain=outcome.program.plain, releases=outcome.releases, draws=outcome.draws)
        totals["programs with a refusal"] += bool(outcome.refusals)
        refusals.update(outcome.refusals)
        plain_whole += outcome.program.plain and not outcome.faults
        if outcome.faults:
            faulty.append(outcome)
    with capsys.disabled():
        print(f"\n{dict(totals)}, with a fault {len(faulty)}")
        print("\n".join(f"{count:6} refused: {reason}" for reason, count in refusals.most_common()))
    if faulty:
        fault = faulty[0].faults[0]
        least = shrunk(faulty[0].program, lambda shorter: fault in outcome_of(shorter).faults)
        pytest.fail(
            f"seeds {[o.program.seed for o in faulty]}; the first, made shorter:\n{outcome_of(least)}"
        )
    assert plain_whole == totals["plain"] >= PROGRAMS // 3
    assert totals["releases"] > 2 * PROGRAMS
    assert totals["programs with a refusal"] > PROGRAMS // 10


@pytest.mark.parametrize(
    "plant", [plants.second_step_uncounted, plants.skipped_batch_uncounted, plants.rate_read_once]
)
def test_a_guard_that_is_broken_on_purpose_is_found(outcome_of: Ledgers, plant: Plant) -> None:
    """A program among 300 is charged too little by a guard that overlooks one thing, and only by it."""
    for seed in range(300):
        broken = outcome_of(program(seed), plant)
        if "charged less than the truth" in broken.faults and not outcome_of(program(seed)).faults:
            return
    pytest.fail(f"{plant.__name__} was not found")


def seen_by(client: Client, *ops: Op, setup: Setup | None = None) -> Oracle:
    """What the oracle saw of these operations, with no guard."""
    setup = setup or Setup()
    oracle = Oracle(setup.n)
    world = World(setup, oracle, client)
    with oracle.watching():
        world.plain()
        world.heads[0].familiar = True
        for name, arguments in ops:
            getattr(world, name)(**arguments)
    return oracle


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize(
    ("ops", "draws_of_releases"),
    [
        ([("loop", {"batches": 3})], [{1}, {2}, {3}]),
        ([("managed", {"size": 1})], [{1}, {2}, {3}, {4}]),
        ([("repeat", {"times": 2})], [{1}, {1}]),
        ([("skipped", {"batches": 3})], [{1, 2, 3}]),
        ([("join", {}), ("backward", {}), ("step", {})], [{1, 2}]),
        ([("interrupt", {}), ("loop", {"batches": 1})], [{2}]),
        ([("source", {"kind": "foreign"}), ("loop", {"batches": 1})], [{0}]),
    ],
    ids=["loop", "manager", "two steps", "skip signals", "two batches in one", "given up", "no sampler"],
)
def test_the_oracle_sees_which_draws_left(
    mode: str, ops: list[Op], draws_of_releases: list[set[int]]
) -> None:
    """The draws in each update are read off the update itself."""
    with Ledger() as client:
        oracle = seen_by(client, *ops, setup=Setup(n=24, batch_size=6, mode=mode))
    seen = [set(release.seen.any(dim=1).nonzero().flatten().tolist()) for release in oracle.releases]
    assert seen == draws_of_releases


def test_the_oracle_sees_a_record_that_went_in_twice() -> None:
    """Two backward passes of one batch without a step: each record is there at twice the clip norm."""
    with Ledger() as client:
        twice = [("fetch", {}), ("first_half", {}), ("skip", {"flag": True}), ("zero", {})]
        twice += [("backward", {}), ("step", {}), ("zero", {}), ("backward", {}), ("step", {})]
        oracle = seen_by(client, *twice, setup=Setup(n=24, batch_size=8, clip=0.5))
    (release,) = oracle.releases
    assert release.seen.max() == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("order", ORDERS)
def test_the_truth_at_a_rate_of_one_is_the_gaussians(order: int) -> None:
    """α a² / 2 for a shift of a deviations; two releases of one draw add their squares."""
    assert divergence({1: 1.0}, {1: [0.5]}, order) == pytest.approx(order / 8)
    assert divergence({1: 1.0}, {1: [0.5, 0.5]}, order) == pytest.approx(order / 4)


@pytest.mark.parametrize("order", ORDERS)
def test_the_truth_by_sums_is_the_truth_by_integrals(order: int) -> None:
    """A second draw that never takes anybody changes nothing, and takes the other road."""
    alone = divergence({1: 0.1}, {1: [0.8]}, order)
    beside_nobody = divergence({1: 0.1, 2: 0.0}, {1: [0.8], 2: [0.8]}, order)
    assert alone == pytest.approx(beside_nobody, rel=1e-6)


def test_the_truth_of_draws_that_share_nothing_adds_up() -> None:
    """Two releases of two draws cost twice one."""
    one = divergence({1: 0.1}, {1: [1.0]}, 8)
    assert divergence({1: 0.1, 2: 0.1}, {1: [1.0, 0], 2: [0, 1.0]}, 8) == pytest.approx(2 * one)


def test_the_truth_of_four_draws_in_one_release_is_above_four_releases() -> None:
    """Batches put together under the noise of one cost more than each alone."""
    apart = 4 * divergence({1: 0.01}, {1: [1.0]}, 8)
    together = divergence(dict.fromkeys(range(4), 0.01), {draw: [1.0] for draw in range(4)}, 8)
    assert math.isfinite(together)
    assert together > 1.5 * apart
