"""Servers killed while sessions are answered. Eight times here; `make test-system` does it fifty times."""

import random

import pytest
import sessions
from amount import amount

ROUNDS = amount(8, 3)


@pytest.mark.parametrize("servers", [1, 2])
def test_a_killed_server_leaves_each_session_where_its_runner_was_told(servers: int) -> None:
    """Each paid step is in the ledger once, free answers are not, and a run that began was paid."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with sessions.world("sqlite", servers, chance) as killed:
        sessions.survive(killed, ROUNDS, chance)
        print(sessions.figures(killed))
        assert all(runner.told for runner in killed.runners)
        assert sum(runner.free for runner in killed.runners) > 0
