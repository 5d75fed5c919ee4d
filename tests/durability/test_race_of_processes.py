"""Sixty-four callers on four server processes: together they admit what fits, to the last charge."""

from collections.abc import Iterator

import four
import pytest
from amount import amount

ROUNDS = amount(5, 1)


@pytest.fixture(scope="module", params=["redis", "sqlite"])
def servers(request: pytest.FixtureRequest) -> Iterator[four.Four]:
    with four.four(request.param) as running:
        yield running


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_four_processes_admit_exactly_what_fits(servers: four.Four, round_: int) -> None:
    four.exactly_what_fits(servers, f"fits-{round_}", [1, 40, 64, 100, 127][round_])


@pytest.mark.parametrize("fitting", [7, 101])
def test_lists_are_all_or_nothing_whichever_process_takes_them(servers: four.Four, fitting: int) -> None:
    four.lists_are_whole(servers, f"lists-{fitting}", fitting)


def test_one_key_at_all_processes_at_once_is_one_charge(servers: four.Four) -> None:
    four.one_key_is_one_charge(servers, "same-keys")
