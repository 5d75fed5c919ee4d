"""Primaries of a cluster are killed under load: what was acknowledged is kept, or its stream is frozen."""

from pathlib import Path

import failing_over


def test_with_a_replica_for_each_append_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with failing_over.world(tmp_path, seed=1, replicas=1) as world:
        for _ in range(3):
            world.round()
        findings = world.examine()
    sums = failing_over.tally(world.rounds)
    assert (sums["frozen"], sums["streams"], sums["unaccounted"]) == (0, 0, 0)
    assert sums["acked"] == sums["in_ledger"] > 0
    assert findings.faults() == {}


def test_what_a_cut_off_replica_never_heard_is_noticed_and_frozen_until_a_person_decides(
    tmp_path: Path,
) -> None:
    with failing_over.world(tmp_path, seed=2, replicas=0) as world:
        for restarts in (False, True, True):
            world.round(cut=True, restarts=restarts)
        findings = world.examine()
    sums = failing_over.tally(world.rounds)
    assert sums["frozen"] > 0
    assert [one.unaccounted for one in world.rounds] == [[], [], []]
    assert findings.faults() == {}
