"""Two server processes on one store, killed again and again amid answers of sessions; Redis is killed too."""

import random

import pytest
import sessions

ROUNDS = 25


@pytest.mark.parametrize("kind", ["redis", "sqlite"])
def test_many_kills_leave_each_session_where_its_runner_was_told(kind: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with sessions.world(kind, 2, chance) as killed:
        sessions.survive(killed, ROUNDS, chance)
        print(sessions.figures(killed))
        assert sum(runner.found_again for runner in killed.runners) > 0
        assert sum(runner.free for runner in killed.runners) > ROUNDS
