"""Four server processes on one store, raced a hundred times: never one charge more or less than fits."""

import random

import four
import pytest

ROUNDS = 100


@pytest.mark.parametrize("kind", ["redis", "sqlite"])
def test_a_hundred_races_admit_exactly_what_fits(kind: str) -> None:
    seed = random.randrange(2**32)
    draw, again, charges = random.Random(seed), 0, 0
    with four.four(kind) as servers:
        for number in range(ROUNDS):
            fitting = draw.randint(1, 127)
            again += four.exactly_what_fits(servers, f"race-{number}", fitting)
            charges += fitting
            if number % 10 == 0:
                four.lists_are_whole(servers, f"lists-{number}", fitting)
                four.one_key_is_one_charge(servers, f"keys-{number}")
    print(
        f"seed {seed}: {ROUNDS} races, {charges} charges fitted and were admitted; asked again {again} times"
    )
