"""Blocks: what is asked for, under which keys, what is given back, and what is never run unpaid."""

import logging
import os
from typing import Any

import pytest
from paying import Ledger

from odometer_client import BudgetExceeded, OutcomeUnknown, Receipt
from odometer_client.blocks import Blocks, Buy
from odometer_client.errors import HoldSettled, ReplayedCharge
from odometer_client.mechanism import Mechanism
from odometer_client.mechanisms import Gaussian

STEP = Gaussian(noise_multiplier=1.0)
OTHER = Gaussian(noise_multiplier=0.9)


def whole(ledger: Ledger, *, block: int, run_id: str | None = None) -> Blocks:
    """Blocks that are whole from the first on."""
    return Blocks(ledger, block=block, run_id=run_id, first=block)


def test_blocks_start_small_and_double() -> None:
    ledger = Ledger()
    take(Blocks(ledger, block=10), 40)
    assert ledger.counts == [1, 2, 4, 8, 10, 10, 10]


def test_a_job_of_few_steps_holds_few_more_than_it_takes() -> None:
    """For every length, one that is killed leaves less than it took, and one step, unused."""
    for steps in range(1, 200):
        ledger = Ledger()
        take(Blocks(ledger, block=100), steps)
        assert ledger.spent < 2 * steps + 1


def test_at_the_end_what_is_not_used_comes_back_and_trouble_is_said(caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger()
    blocks = whole(ledger, block=10)
    take(blocks, 3)
    blocks.end()
    assert ledger.spent == 3
    take(blocks, 1)
    ledger.loses_settlements = True
    blocks.end()
    assert "stays spent, 1 of its steps were taken" in caplog.text


def test_an_end_in_the_middle_of_a_payment_gives_nothing_back(caplog: pytest.LogCaptureFixture) -> None:
    """A signal may come between paying for a step and counting it."""
    ledger = Ledger()
    blocks = whole(ledger, block=10)
    take(blocks, 3)
    with blocks._lock:
        blocks.end()
    assert ledger.spent == 10
    assert "stays spent" in caplog.text


def take(blocks: Blocks, steps: int, mechanism: Mechanism = STEP) -> None:
    for _ in range(steps):
        blocks.take(mechanism)


def test_a_block_is_held_at_once_and_used_up_before_the_next() -> None:
    ledger = Ledger()
    take(whole(ledger, block=100), 250)
    assert ledger.counts == [100, 100, 100]
    assert ledger.settled == [100, 100]
    assert ledger.spent == 300


def test_what_is_not_used_is_given_back_and_no_more() -> None:
    ledger = Ledger()
    blocks = whole(ledger, block=100)
    take(blocks, 130)
    blocks.settle()
    assert ledger.settled == [100, 30]
    assert (blocks.taken, blocks.charged, blocks.prepaid, ledger.spent) == (130, 130, 0, 130)


def test_without_settling_a_block_stays_spent() -> None:
    """As of a process that is killed."""
    ledger = Ledger()
    take(whole(ledger, block=100), 1)
    assert ledger.spent == 100


def test_a_step_after_settling_takes_a_new_block() -> None:
    ledger = Ledger()
    blocks = whole(ledger, block=10)
    for _ in range(3):
        take(blocks, 1)
        blocks.settle()
    assert ledger.counts == [10, 10, 10]
    assert ledger.spent == 3


def test_the_last_block_shrinks_to_what_fits() -> None:
    ledger = Ledger(fits=130)
    blocks = whole(ledger, block=100)
    take(blocks, 130)
    with pytest.raises(BudgetExceeded):
        blocks.take(STEP)
    assert ledger.counts == [100, 100, 30, 60]
    assert (blocks.taken, blocks.charged, ledger.spent) == (130, 130, 130)
    assert not ledger.open


def test_without_a_hint_the_block_is_halved() -> None:
    ledger = Ledger(fits=30, tells=False)
    blocks = whole(ledger, block=100)
    take(blocks, 30)
    with pytest.raises(BudgetExceeded):
        blocks.take(STEP)
    assert ledger.spent == 30


def test_a_hint_that_does_not_shrink_still_ends() -> None:
    ledger = Ledger(fits=0, hint=10**9)
    with pytest.raises(BudgetExceeded):
        whole(ledger, block=5).take(STEP)


def test_a_block_of_one_is_charged_and_not_held() -> None:
    ledger = Ledger()
    take(Blocks(ledger, block=1), 3)
    assert ledger.kinds == ["charge"] * 3


def test_where_too_many_holds_are_open_a_block_is_charged() -> None:
    ledger = Ledger()
    ledger.full = True
    blocks = whole(ledger, block=10)
    take(blocks, 4)
    blocks.settle()
    assert ledger.kinds == ["hold", "charge"]
    assert ledger.spent == blocks.charged == 10


def test_every_request_has_a_key_of_its_own() -> None:
    ledger = Ledger(fits=130)
    blocks = whole(ledger, block=100)
    with pytest.raises(BudgetExceeded):
        take(blocks, 131)
    keys = [key for _, _, _, key in ledger.asked]
    assert len(set(keys)) == len(keys)
    assert all(key.startswith(f"{blocks.run_id}.") and len(key) <= 128 for key in keys)


def test_a_noise_schedule_gives_back_what_its_first_block_did_not_use() -> None:
    ledger = Ledger()
    blocks = whole(ledger, block=100)
    for step in range(20):
        blocks.take(Gaussian(noise_multiplier=2.0 - step / 100))
    assert ledger.counts == [100] + [1] * 19
    assert ledger.spent == 20


def test_after_a_change_blocks_grow_again() -> None:
    ledger = Ledger()
    blocks = whole(ledger, block=8)
    take(blocks, 1)
    take(blocks, 23, OTHER)
    assert ledger.counts == [8, 1, 2, 4, 8, 8]


def test_what_is_given_back_makes_room_for_the_next_mechanism() -> None:
    ledger = Ledger(fits=10)
    blocks = whole(ledger, block=10)
    take(blocks, 4)
    take(blocks, 6, OTHER)
    with pytest.raises(BudgetExceeded):
        blocks.take(OTHER)
    assert ledger.spent == 10


def test_after_an_unknown_outcome_the_same_request_is_asked_again() -> None:
    ledger = Ledger()
    blocks = whole(ledger, block=10)
    ledger.loses = True
    with pytest.raises(OutcomeUnknown):
        blocks.take(STEP)
    assert blocks.taken == 0
    ledger.loses = False
    take(blocks, 10)
    assert len({key for _, _, _, key in ledger.asked}) == 1
    assert ledger.spent == 10


@pytest.mark.parametrize("arrived", [True, False])
def test_a_settlement_without_an_answer_closes_the_block_and_is_asked_again_for_the_same(
    caplog: pytest.LogCaptureFixture, *, arrived: bool
) -> None:
    """It may have been given back: a step more of that block would be unpaid."""
    ledger = Ledger()
    blocks = whole(ledger, block=10)
    take(blocks, 3)
    ledger.loses_settlements, ledger.takes_settlements = True, arrived
    blocks.settle()
    assert "is not settled" in caplog.text
    assert blocks.prepaid == 0
    ledger.loses_settlements, ledger.takes_settlements = False, True
    take(blocks, 2)
    assert ledger.settled == [3]
    assert ledger.counts == [10, 10]
    blocks.settle()
    assert ledger.spent == blocks.charged == blocks.taken == 5


def test_an_expired_block_is_spent_and_still_used(caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger()
    blocks = whole(ledger, block=10)
    take(blocks, 3)
    ledger.expired = True
    blocks.settle()
    assert "expired: what it held stays spent" in caplog.text
    assert blocks.prepaid == 7
    take(blocks, 7)
    assert (ledger.counts, ledger.spent, blocks.charged) == ([10], 10, 10)
    blocks.settle()
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


def test_a_hold_that_somebody_else_settled_for_less_is_told() -> None:
    """Steps of it ran that are not paid for: no log line is loud enough."""
    ledger = Ledger()
    blocks = whole(ledger, block=10)
    take(blocks, 3)
    ledger.settle(1, 0)
    with pytest.raises(HoldSettled):
        blocks.settle()
    assert blocks.prepaid == 0


def test_ranks_that_step_together_all_hear_of_it() -> None:
    """The one that settles raises inside the buying, whose outcome is told to the others."""
    ledger = Ledger()
    blocks = whole(ledger, block=2)
    heard: list[BaseException] = []

    def around(buy: Buy) -> Buy:
        def telling(mechanism: Mechanism, wanted: int) -> int:
            try:
                return buy(mechanism, wanted)
            except HoldSettled as error:
                heard.append(error)
                raise

        return telling

    blocks.together(around)
    take(blocks, 2)
    ledger.settle(1, 0)
    with pytest.raises(HoldSettled):
        blocks.take(STEP)
    assert len(heard) == 1
    assert (blocks.taken, ledger.counts) == (2, [2])


def test_a_replay_that_nobody_retried_for_pays_for_nothing() -> None:
    ledger = Ledger()
    ledger.replays = True
    blocks = Blocks(ledger)
    with pytest.raises(ReplayedCharge, match="run_id"):
        blocks.take(STEP)
    assert blocks.taken == 0
    blocks.settle()
    assert not ledger.settled


def test_a_replay_of_the_clients_own_retry_pays() -> None:
    ledger = Ledger()
    ledger.replays = ledger.retried = True
    Blocks(ledger).take(STEP)


def test_a_checkpoint_gives_back_what_is_prepaid_and_a_resumed_run_takes_a_block_of_its_own() -> None:
    ledger = Ledger()
    first = whole(ledger, run_id="run", block=10)
    take(first, 3)
    second = whole(ledger, block=10)
    second.load_state_dict(first.state_dict())
    assert ledger.spent == 3
    take(second, 1)
    assert (second.run_id, second.taken, second.charged, second.prepaid) == ("run", 4, 13, 9)
    assert len(ledger.keys) == 2


def test_steps_after_a_checkpoint_are_charged_in_both_processes() -> None:
    """One goes on past its checkpoint and dies; the other runs the same steps again, with fresh noise."""
    ledger = Ledger()
    first = whole(ledger, run_id="run", block=10)
    take(first, 3)
    state = first.state_dict()
    take(first, 4)
    second = whole(ledger, block=10)
    second.load_state_dict(state)
    take(second, 4)
    second.settle()
    assert ledger.spent == 3 + 10 + 4
    assert second.taken == second.charged == 7


def test_going_back_to_an_old_checkpoint_charges_again() -> None:
    ledger = Ledger()
    blocks = whole(ledger, run_id="run", block=5)
    state = blocks.state_dict()
    for _ in range(3):
        blocks.load_state_dict(state)
        take(blocks, 4)
    blocks.settle()
    assert ledger.spent == 12
    assert len(ledger.keys) == 3


def test_ranks_that_step_together_keep_their_block_at_a_checkpoint() -> None:
    """If one of them alone saved, it would ask for a block while the others have steps left."""
    ledger = Ledger()
    blocks = whole(ledger, block=10)
    blocks.together(lambda buy: buy)
    take(blocks, 3)
    blocks.state_dict()
    assert blocks.prepaid == 7
    blocks.settle()
    assert ledger.spent == 3


def test_a_forked_process_pays_for_itself_and_settles_nothing_of_its_parents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = Ledger()
    blocks = whole(ledger, block=10)
    take(blocks, 1)
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    blocks.settle()
    assert not ledger.settled
    take(blocks, 1)
    assert ledger.counts == [10, 10]
    assert len(ledger.keys) == 2


def test_the_last_receipt_is_kept() -> None:
    blocks = Blocks(Ledger(), block=1)
    take(blocks, 2)
    assert isinstance(blocks.receipt, Receipt)
    assert blocks.receipt.sequence == 2


@pytest.mark.parametrize(
    "options", [{"block": 0}, {"block": -1}, {"run_id": ""}, {"run_id": "a b"}, {"run_id": "é"}]
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give"):
        Blocks(Ledger(), **options)
