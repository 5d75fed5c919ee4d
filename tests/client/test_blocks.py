"""Blocks: what is asked for, under which keys, and what is never run unpaid."""

import os
from typing import Any

import pytest

from odometer_client import BudgetExceeded, OutcomeUnknown, Receipt
from odometer_client.blocks import Blocks
from odometer_client.errors import ReplayedCharge
from odometer_client.mechanism import Mechanism
from odometer_client.mechanisms import Gaussian

STEP = Gaussian(noise_multiplier=1.0)
OTHER = Gaussian(noise_multiplier=0.9)


class Ledger:
    """Charges what fits, remembers keys, and can be made to lose answers."""

    def __init__(self, fits: int = 10**9, *, tells: bool = True) -> None:
        self.fits = fits
        self.tells = tells
        self.asked: list[tuple[Mechanism, int, str]] = []
        self.keys: dict[str, int] = {}
        self.loses = False

    def __call__(self, mechanism: Mechanism, count: int, key: str) -> Receipt:
        self.asked.append((mechanism, count, key))
        replayed = key in self.keys
        if not replayed:
            if count > self.fits:
                largest = self.fits if self.tells else None
                raise BudgetExceeded({"detail": "full", "would_fit": {"largest_count": largest}})
            self.fits -= count
            self.keys[key] = count
        if self.loses:
            raise OutcomeUnknown("lost", key)
        return Receipt({"dataset": "d", "sequence": len(self.keys), "replayed": replayed})

    @property
    def counts(self) -> list[int]:
        return [count for _, count, _ in self.asked]

    @property
    def charged(self) -> int:
        return sum(self.keys.values())


def take(blocks: Blocks, steps: int, mechanism: Mechanism = STEP) -> None:
    for _ in range(steps):
        blocks.take(mechanism)


def test_a_block_is_charged_at_once_and_used_up_before_the_next() -> None:
    ledger = Ledger()
    take(Blocks(ledger, block=100), 250)
    assert ledger.counts == [100, 100, 100]


def test_the_last_block_shrinks_to_what_fits() -> None:
    ledger = Ledger(fits=130)
    blocks = Blocks(ledger, block=100)
    take(blocks, 130)
    with pytest.raises(BudgetExceeded):
        blocks.take(STEP)
    assert ledger.counts == [100, 100, 30, 60]
    assert (blocks.taken, blocks.charged, ledger.charged) == (130, 130, 130)


def test_without_a_hint_the_block_is_halved() -> None:
    ledger = Ledger(fits=30, tells=False)
    blocks = Blocks(ledger, block=100)
    take(blocks, 30)
    with pytest.raises(BudgetExceeded):
        blocks.take(STEP)
    assert ledger.charged == 30


def test_a_hint_that_does_not_shrink_still_ends() -> None:
    def refuses(mechanism: Mechanism, count: int, key: str) -> Receipt:
        raise BudgetExceeded({"would_fit": {"largest_count": 10**9}})

    with pytest.raises(BudgetExceeded):
        Blocks(refuses, block=5).take(STEP)


def test_every_request_has_a_key_of_its_own() -> None:
    ledger = Ledger(fits=130)
    blocks = Blocks(ledger, block=100)
    with pytest.raises(BudgetExceeded):
        take(blocks, 131)
    keys = [key for _, _, key in ledger.asked]
    assert len(set(keys)) == len(keys)
    assert all(key.startswith(f"{blocks.run_id}.") and len(key) <= 128 for key in keys)


def test_a_noise_schedule_wastes_one_block_and_not_one_for_each_step() -> None:
    ledger = Ledger()
    blocks = Blocks(ledger, block=100)
    for step in range(20):
        blocks.take(Gaussian(noise_multiplier=2.0 - step / 100))
    assert ledger.counts == [100] + [1] * 19


def test_after_a_change_blocks_grow_again() -> None:
    ledger = Ledger()
    blocks = Blocks(ledger, block=8)
    take(blocks, 1)
    take(blocks, 23, OTHER)
    assert ledger.counts == [8, 1, 2, 4, 8, 8]


def test_leftovers_are_used_when_the_noise_comes_back() -> None:
    ledger = Ledger()
    blocks = Blocks(ledger, block=4)
    take(blocks, 1)
    take(blocks, 1, OTHER)
    take(blocks, 3)
    assert ledger.counts == [4, 1]


def test_after_an_unknown_outcome_the_same_request_is_asked_again() -> None:
    ledger = Ledger()
    blocks = Blocks(ledger, block=10)
    ledger.loses = True
    with pytest.raises(OutcomeUnknown):
        blocks.take(STEP)
    assert blocks.taken == 0
    ledger.loses = False
    take(blocks, 10)
    assert len({key for _, _, key in ledger.asked}) == 1
    assert ledger.charged == 10


def test_a_replay_that_nobody_retried_for_pays_for_nothing() -> None:
    def replays(mechanism: Mechanism, count: int, key: str) -> Receipt:
        return Receipt({"dataset": "d", "sequence": 3, "replayed": True})

    blocks = Blocks(replays)
    with pytest.raises(ReplayedCharge, match="run_id"):
        blocks.take(STEP)
    assert blocks.taken == 0


def test_a_replay_of_the_clients_own_retry_pays() -> None:
    def retried(mechanism: Mechanism, count: int, key: str) -> Receipt:
        return Receipt({"dataset": "d", "sequence": 3, "replayed": True}, retried=True)

    Blocks(retried).take(STEP)


def test_a_resumed_run_has_new_keys_and_no_prepaid_steps() -> None:
    ledger = Ledger()
    first = Blocks(ledger, run_id="run", block=10)
    take(first, 3)
    second = Blocks(ledger, block=10)
    second.load_state_dict(first.state_dict())
    take(second, 1)
    assert (second.run_id, second.taken, second.charged, second.prepaid) == ("run", 4, 20, 9)
    assert len(ledger.keys) == 2


def test_going_back_to_an_old_checkpoint_charges_again() -> None:
    ledger = Ledger()
    blocks = Blocks(ledger, run_id="run", block=5)
    state = blocks.state_dict()
    for _ in range(3):
        blocks.load_state_dict(state)
        take(blocks, 5)
    assert ledger.charged == 15
    assert len(ledger.keys) == 3


def test_a_forked_process_pays_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger()
    blocks = Blocks(ledger, block=10)
    take(blocks, 1)
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    take(blocks, 1)
    assert ledger.counts == [10, 10]
    assert len(ledger.keys) == 2


@pytest.mark.parametrize(
    "options", [{"block": 0}, {"block": -1}, {"run_id": ""}, {"run_id": "a b"}, {"run_id": "é"}]
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give"):
        Blocks(Ledger(), **options)
