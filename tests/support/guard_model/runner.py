"""One program from start to end, and what came of it."""

import math
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from guard_model.jobs import Interrupted
from guard_model.oracle import Oracle, TooLong
from guard_model.programs import Op, Program
from guard_model.truth import ORDERS
from guard_model.world import World
from odometer_client import Client, OdometerError

LOWER = 1e-6
"""How far below the truth a charge may be, relative: single precision in what the oracle measures."""
Plant = Callable[[World], None]
"""Breaks the guard of a world on purpose, each time heads were made."""


@dataclass
class Outcome:
    """What a program released, what was charged for it, and what was refused."""

    program: Program
    releases: int = 0
    draws: int = 0
    refusals: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """What Opacus or torch raised."""
    stopped: bool = False
    charged: dict[int, float] = field(default_factory=dict)
    truth: dict[int, float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        said = [str(self.program), *(f"  refused: {reason}" for reason in self.refusals)]
        said += [f"  raised: {error}" for error in self.errors]
        said += [
            f"  order {o}: charged {self.charged[o]:.6g}, truth {self.truth[o]:.6g}" for o in self.charged
        ]
        said += [f"  {self.releases} releases of {self.draws} draws", *(f"  FAULT: {f}" for f in self.faults)]
        return "\n".join(said)


def run(program: Program, client: Client, plant: Plant | None = None) -> Outcome:
    """Run it, whatever is refused on the way, and compare."""
    torch.manual_seed(program.seed)
    oracle = Oracle(program.setup.n)
    outcome = Outcome(program)
    world = World(program.setup, oracle, client)
    world.plant = plant
    with oracle.watching():
        for op in (("start", {}), *program.ops):
            if not _done(world, op, outcome):
                break
        if world.engines:
            outcome.stopped = any(guard.stopped for guard in world.engines[-1].guards)
            _done(world, ("close", {}), outcome)
        outcome.charged, outcome.truth = world.charged(), oracle.truth()
        outcome.releases, outcome.draws = len(oracle.releases), len(oracle.rates) - 1
        _judge(outcome, world, oracle)
        world.end()
    return outcome


def _done(world: World, op: Op, outcome: Outcome) -> bool:
    """Whether the program goes on after this operation."""
    name, arguments = op
    try:
        getattr(world, name)(**arguments)
    except TooLong:
        return False
    except Interrupted:
        pass
    except OdometerError as refusal:
        world.oracle.refused()
        outcome.refusals.append(f"{type(refusal).__name__}: {_plain(str(refusal))}")
        return name != "start"
    except Exception as error:
        if not _raised_by_opacus(error):
            raise
        outcome.errors.append(f"{type(error).__name__}: {_plain(str(error))}")
        return name != "start"
    return True


def _raised_by_opacus(error: Exception) -> bool:
    """Whether Opacus or torch refused it themselves: a step out of order, a noise below zero."""
    *_, innermost = traceback.extract_tb(error.__traceback__)
    return any(f"/{package}/" in innermost.filename for package in ("opacus", "torch"))


def _judge(outcome: Outcome, world: World, oracle: Oracle) -> None:
    for reason in sorted(oracle.uncovered):
        outcome.faults.append(f"uncovered: {reason}")
    if not oracle.uncovered:
        for order in ORDERS:
            if outcome.charged[order] < (1 - LOWER) * outcome.truth[order]:
                outcome.faults.append("charged less than the truth")
                break
    outcome.faults += world.short[:1]
    if not outcome.program.plain:
        return
    if outcome.refusals or outcome.errors or outcome.stopped:
        outcome.faults.append("plain, and not let through")
    elif any(
        not math.isclose(outcome.charged[o], outcome.truth[o], rel_tol=1e-5, abs_tol=1e-9) for o in ORDERS
    ):
        outcome.faults.append("plain, and not charged exactly")


def _plain(words: str) -> str:
    """A message without its numbers, so that equal reasons count together."""
    return re.sub(r"[-+]?\d[\d.e+-]*", "#", words.partition("\n")[0])[:110]
