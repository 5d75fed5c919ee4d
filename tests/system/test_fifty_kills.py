"""The real server, killed fifty times at random moments under load."""

import random
import tempfile
from pathlib import Path

from survivor import Survivor, survive

ROUNDS = 50


def test_fifty_kills_lose_and_double_nothing() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix=".survivor-", dir=Path(__file__).parent) as folder:
        survivor = Survivor(Path(folder))
        survive(survivor, ROUNDS, random.Random(seed))
        print(
            f"{survivor.kills} kills, {len(survivor.acked)} charges, {survivor.lost_answers} charged with "
            "the answer lost: none missing, none doubled"
        )
    assert len(survivor.acked) > 10 * ROUNDS
    assert survivor.lost_answers > 0
