"""Programs: random training scripts, printed so that a person can read one, and made shorter if one fails."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from guard_model.jobs import Setup

Op = tuple[str, dict[str, Any]]
RATES = (2e-7, 0.05, 0.125, 0.4, 0.7, 1.0)
NOISES = (0.5, 0.8, 1.5, 3.0)


@dataclass(frozen=True)
class Program:
    """A setup and the operations that follow. `plain`: a guard has to let it through, and charge exactly."""

    seed: int
    plain: bool
    setup: Setup
    ops: tuple[Op, ...]

    def __str__(self) -> str:
        usual = Setup()
        said = [
            f"{field.name}={getattr(self.setup, field.name)!r}"
            for field in fields(Setup)
            if getattr(self.setup, field.name) != getattr(usual, field.name)
        ]
        lines = [f"seed {self.seed}: start({', '.join(said)})"]
        for name, arguments in self.ops:
            lines.append(f"    {name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})")
        return "\n".join(lines)


def program(seed: int) -> Program:
    """The program of a seed: one of three is plain."""
    chance = random.Random(seed)
    plain = seed % 3 == 0
    setup = _setup(chance, plain)
    choices = _PLAIN if plain else _WILD
    names, weights = zip(*((name, weight) for name, (weight, _) in choices.items()), strict=True)
    ops = []
    for name in chance.choices(names, weights, k=chance.randint(1, 5 if plain else 8)):
        drawn = choices[name][1](chance)
        ops += drawn if isinstance(drawn, list) else [(name, drawn)]
    if plain and any("clip" in (name, arguments.get("kind")) for name, arguments in ops):
        setup = replace(setup, mode="hooks")  # others clip by a norm of their own
    if setup.heads != "one":
        ops = [(name, _at_some_head(name, arguments, chance)) for name, arguments in ops]
    return Program(seed, plain, setup, tuple(ops))


def shrunk(failing: Program, fails: Callable[[Program], bool]) -> Program:
    """A program with fewer operations and a more usual setup that still fails."""
    going = True
    while going:
        going = False
        for shorter in _shorter(failing):
            if fails(shorter):
                failing, going = shorter, True
                break
    return failing


def _shorter(longer: Program) -> Iterator[Program]:
    for number in range(len(longer.ops)):
        yield replace(longer, ops=longer.ops[:number] + longer.ops[number + 1 :])
    for field in fields(Setup):
        usual = getattr(Setup(), field.name)
        if getattr(longer.setup, field.name) != usual:
            yield replace(longer, setup=replace(longer.setup, **{field.name: usual}))
    for number, (name, arguments) in enumerate(longer.ops):
        for key in ("batches", "times"):
            if arguments.get(key, 1) > 1:
                fewer = (name, {**arguments, key: arguments[key] - 1})
                yield replace(longer, ops=(*longer.ops[:number], fewer, *longer.ops[number + 1 :]))


def _setup(chance: random.Random, plain: bool) -> Setup:
    setup = Setup(
        n=chance.choice([16, 24]),
        batch_size=chance.choice([1, 2, 4, 8]),
        mode=chance.choice(["hooks", "hooks", "hooks", "ghost", "ghost", "ghost", "functorch", "per layer"]),
        wrap=chance.random() < 0.85,
        reduction=chance.choice(["mean", "mean", "sum"]),
        noise=chance.choice([0.5, 1.0, 2.0]),
        clip=chance.choice([0.5, 1.0, 3.0]),
        block=chance.choice([1, 4, 16]),
        prompt=chance.random() < 0.25,
        **({"adjacency": "add_remove", "stated": True} if chance.random() < 0.3 else {}),
    )
    if plain:
        return setup
    rare: dict[str, Any] = {
        "heads": chance.choice(["two on one loader", "two loaders"]) if chance.random() < 0.25 else "one",
        "epsilon": chance.choice([0.5, 3.0, 10.0]) if chance.random() < 0.15 else None,
        "on_exhausted": chance.choice([None, "stop", "raise"]),
        "rand_on_empty": chance.random() < 0.04,
        "history": chance.randint(1, 4) if chance.random() < 0.08 else 0,
        "own_noise": chance.random() < 0.1,
        "charge_history": chance.random() < 0.7,
    }
    if chance.random() < 0.05:
        rare |= {"adjacency": "add_remove", "stated": False}
    if chance.random() < 0.02:
        rare["noise"] = chance.choice([0.0, float("nan"), float("inf"), -1.0])
    if chance.random() < 0.02:
        rare["clip"] = chance.choice([0.0, float("nan"), float("inf"), -1.0])
    return replace(setup, **rare)


def _at_some_head(name: str, arguments: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    if name in _HEADLESS or chance.random() < 0.5:
        return arguments
    return {**arguments, "head": 1}


def _steps(chance: random.Random) -> list[Op]:
    """A step put together from its parts: some are left out, doubled, or exchanged."""
    parts: list[Op] = [("fetch", {}), ("zero", {}), ("backward", {}), ("step", {})] * chance.randint(1, 2)
    for _ in range(chance.randint(0, 3)):
        place = chance.randrange(len(parts) + 1)
        change = chance.random()
        if change < 0.3 and len(parts) > 1:
            parts.pop(place % len(parts))
        elif change < 0.6:
            parts.insert(place, parts[place % len(parts)])
        else:
            part: Op = chance.choice(
                [
                    ("skip", {"flag": True}),
                    ("skip", {"flag": False}),
                    ("first_half", {}),
                    ("join", {}),
                    ("fetch", {}),
                    ("stale", {}),
                    ("doubled", {}),
                    ("first_repeated", {}),
                    ("zero_model", {}),
                    ("step_by_parts", {}),
                    ("rate", {"rate": chance.choice(RATES)}),
                    ("noise", {"noise": chance.choice(NOISES)}),
                    ("clip", {"clip": chance.choice([0.2, 5.0])}),
                    ("reseed", {"seed": 1}),
                    ("reseed_noise", {"seed": 1}),
                ]
            )
            parts.insert(place, part)
    return parts


_HEADLESS = {
    "fetch",
    "stale",
    "join",
    "first_half",
    "doubled",
    "first_repeated",
    "old",
    "both",
    "save",
    "load",
    "resume",
    "reseed",
    "reseed_noise",
    "close",
}

Choices = dict[str, tuple[float, Callable[[random.Random], Any]]]

_PLAIN: Choices = {
    "loop": (5, lambda c: {"batches": c.randint(1, 5), "zero": c.choice(["first", "last"])}),
    "managed": (3, lambda c: {"size": c.choice([1, 2, 3]), "stop_after": c.choice([None, None, 1, 2, 4])}),
    "closure": (0.7, lambda _: {}),
    "interleave": (0.5, lambda c: {"batches": c.randint(1, 2)}),
    "break_late": (1, lambda c: {"batches": c.randint(0, 2)}),
    "interrupt": (0.5, lambda _: {}),
    "step_by_parts": (0.5, lambda _: [(part, {}) for part in ("fetch", "zero", "backward", "step_by_parts")]),
    "fresh": (1, lambda c: {"batches": c.randint(1, 3)}),
    "source": (1, lambda c: {"kind": c.choice(["own", "guarded"])}),
    "scheduler": (2, lambda c: {"kind": c.choice(["noise", "clip", "rate of learning"])}),
    "noise": (0.5, lambda c: {"noise": c.choice(NOISES)}),
    "clip": (0.5, lambda c: {"clip": c.choice([0.7, 2.0])}),
    "save": (1, lambda _: {}),
    "resume": (1, lambda _: [("save", {}), ("resume", {"clean": True})]),
    "load": (0.5, lambda _: {}),
    "close": (1, lambda _: {}),
}
_WILD: Choices = {
    **{name: (weight / 3, arguments) for name, (weight, arguments) in _PLAIN.items()},
    "managed": (2, lambda c: {"size": c.choice([1, 2, 3]), "stop_after": c.choice([None, 1, 2, 3, 5])}),
    "managed_clip": (
        0.5,
        lambda c: [("managed", {"size": c.choice([1, 2]), "clip": c.choice([0.2, 2.0])})],
    ),
    "one_loss": (0.7, lambda c: {"draws": c.randint(1, 2)}),
    "interleave": (0.5, lambda c: {"batches": c.randint(1, 2)}),
    "old": (0.5, lambda c: {"batches": c.randint(1, 2)}),
    "reseed_noise": (0.3, lambda _: {"seed": 1}),
    "source": (
        1,
        lambda c: {
            "kind": c.choice(
                ["own", "managed", "guarded", "shuffled", "foreign", "another", "another, guarded"]
            )
        },
    ),
    "steps": (4, _steps),
    "both": (1, lambda c: {"batches": c.randint(1, 3)}),
    "repeat": (1, lambda c: {"times": c.randint(2, 3), "zero": c.choice(["first", "last", "never"])}),
    "skipped": (1.5, lambda c: {"batches": c.randint(2, 4)}),
    "skip_empties": (0.5, lambda c: {"batches": c.randint(2, 6)}),
    "break_late": (0.5, lambda c: {"batches": c.randint(0, 2)}),
    "interrupt": (1, lambda _: {}),
    "rate": (1.5, lambda c: {"rate": c.choice(RATES)}),
    "noise": (0.7, lambda c: {"noise": c.choice([*NOISES, *NOISES, 0.0, float("nan"), float("inf")])}),
    "clip": (0.7, lambda c: {"clip": c.choice([0.7, 2.0, 0.7, 2.0, 0.0, float("inf"), -1.0])}),
    "layer_clip": (0.3, lambda _: {"clip": 5.0}),
    "divisor": (0.2, lambda c: {"size": c.randint(1, 9)}),
    "unhook": (0.4, lambda c: {"hook": c.choice(["none", "another"])}),
    "resume": (1, lambda c: {"clean": c.random() < 0.5, "seed": c.choice([None, None, 1])}),
    "reseed": (0.4, lambda _: {"seed": 1}),
    "stale": (0.3, lambda _: [("stale", {}), ("zero", {}), ("backward", {}), ("step", {})]),
}
