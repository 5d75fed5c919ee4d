"""Each kind of fault under load, on a real Redis: nothing lost, doubled, overspent or wrongly answered."""

from pathlib import Path

import pytest
import striking
from amount import amount

STRIKES = amount(3, 1)


@pytest.mark.parametrize("kind", striking.KINDS)
def test_no_fault_breaks_a_promise(kind: str, tmp_path: Path) -> None:
    with striking.world(tmp_path, seed=sorted(striking.KINDS).index(kind)) as world:
        with world.load(seed=1):
            for _ in range(STRIKES):
                world.wait(world.chance.uniform(0.1, 0.4))
                world.strike(kind)
            world.wait(0.2)
        findings = world.examine()
    assert findings.faults() == {}
    assert world.promises.counts["acked"] > 10
