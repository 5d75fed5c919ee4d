"""One draw of the sampler, one step, one charge; whatever else a training loop does is refused, unpaid."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from opacus.schedulers import ExponentialGradClip
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from odometer_client import Client
from odometer_client.errors import UnsupportedPlan
from odometer_client.rates import dp_sgd_step

pytestmark = [
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
]
NewDataset = Callable[..., str]
NewJob = Callable[..., Any]
ChargedSteps = Callable[[str], int]


@pytest.fixture(params=["hooks", "ghost"])
def job(request: pytest.FixtureRequest, new_training_dataset: NewDataset, new_job: NewJob) -> Any:
    """A job in each way of clipping."""
    return new_job(new_training_dataset(), grad_sample_mode=request.param)


def batches(job: Any) -> Any:
    return iter(job.loader)


def managed(job: Any, size: int = 16) -> Any:
    return BatchMemoryManager(data_loader=job.loader, max_physical_batch_size=size, optimizer=job.optimizer)


def weights(job: Any) -> list[torch.Tensor]:
    return list(job.weights())


def same(before: list[torch.Tensor], after: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def refused(job: Any, step: Callable[[], Any], said: str, *, after: int = 0) -> None:
    """Its last step raises, costs nothing, moves no weight, and leaves nothing: the next batch trains."""
    before, paid = weights(job), job.guard.steps + after
    with pytest.raises(UnsupportedPlan, match=said):
        step()
    assert after or same(before, weights(job))
    assert job.guard.steps == paid
    before = weights(job)
    assert all(p.grad is None and p.summed_grad is None for p in job.optimizer.params)
    job.run(1)
    assert job.guard.steps == paid + 1
    assert not same(before, weights(job))


# -- signals and skips


def test_signals_of_other_code_are_refused(job: Any) -> None:
    refused(job, lambda: job.optimizer.signal_skip_step(True), "several draws")


def test_signals_around_the_guard_are_refused(job: Any) -> None:
    def around() -> None:
        images, labels = next(batches(job))
        DPOptimizer.signal_skip_step(job.optimizer, True)
        job.step(images, labels)

    refused(job, around, "queue")


def test_a_batch_that_was_passed_over_is_refused(job: Any) -> None:
    def skipping() -> None:
        for number, (images, labels) in enumerate(job.loader):
            if number != 1:
                job.step(images, labels)

    refused(job, skipping, "passed over", after=1)


def test_skipping_empty_batches_is_refused(new_training_dataset: NewDataset, new_job: NewJob) -> None:
    rows = TensorDataset(torch.randn(40, 64), torch.randint(0, 10, (40,)))
    job = new_job(new_training_dataset(), rows=rows, batch_size=1)

    def skipping() -> None:
        for images, labels in job.loader:
            if len(images):
                job.step(images, labels)

    with pytest.raises(UnsupportedPlan, match="passed over"):
        skipping()


def test_a_batch_passed_over_at_the_end_of_an_epoch_is_refused_in_the_next(job: Any) -> None:
    for number, (images, labels) in enumerate(job.loader):
        if number < len(job.loader) - 1:
            job.step(images, labels)
    refused(job, lambda: job.run(1), "passed over")


def test_ending_a_pass_early_looking_at_a_batch_and_evaluating_are_fine(
    job: Any, charged_steps: ChargedSteps
) -> None:
    next(batches(job))
    for number, (images, labels) in enumerate(job.loader):
        if number == 3:
            break
        job.step(images, labels)
    with torch.no_grad():
        for images, _ in job.loader:
            job.model(images)
    job.run(2)
    job.guard.close()
    assert job.guard.steps == charged_steps(job.guard.dataset) == 5


def test_a_warm_up_pass_whose_gradient_was_dropped_is_fine(job: Any) -> None:
    images, labels = next(batches(job))
    job.backward(images, labels)
    job.optimizer.zero_grad()
    job.run(1)
    assert job.guard.steps == 1


# -- one draw, several steps; several draws, one step


def test_a_second_step_on_a_draw_is_refused(job: Any) -> None:
    images, labels = next(batches(job))
    job.step(images, labels)
    refused(job, lambda: job.step(images, labels), "no batch was drawn")


def test_an_old_batch_in_place_of_the_drawn_one_is_refused(job: Any) -> None:
    passing = batches(job)
    old = next(passing)
    job.step(*old)
    next(passing)
    refused(job, lambda: job.step(*old), "another draw|came before")


def test_a_view_of_an_old_batch_is_known_too(job: Any) -> None:
    passing = batches(job)
    images, labels = next(passing)
    job.step(images, labels)
    fresh, _ = next(passing)
    many = min(len(fresh), len(images))
    refused(job, lambda: job.step(images[:many], labels[:many]), "another draw")


def test_two_draws_in_one_batch_are_refused(job: Any) -> None:
    passing = batches(job)

    def joined() -> None:
        one, other = next(passing), next(passing)
        job.step(torch.cat([one[0], other[0]]), torch.cat([one[1], other[1]]))

    refused(job, joined, "records|passed over")


def test_a_batch_of_several_passes_at_once_is_refused(job: Any) -> None:
    for one, other in zip(job.loader, job.loader, strict=True):
        with pytest.raises(UnsupportedPlan):
            job.step(*one) or job.step(*other)
        break


def test_a_part_of_the_batch_is_refused(job: Any) -> None:
    def part() -> None:
        images, labels = next(batches(job))
        job.step(images[:8], labels[:8])

    refused(job, part, "not as many parts as the batch")


def test_several_rows_for_a_record_are_refused(job: Any) -> None:
    """As in augmenting: each copy is clipped by itself, so that a record moves the sum by more than C."""

    def doubled() -> None:
        images, labels = next(batches(job))
        job.step(images.repeat(2, 1), labels.repeat(2))

    refused(job, doubled, "each record|parts")


def test_rows_of_another_source_are_refused(job: Any) -> None:
    rows = job.loader.dataset[:64]
    refused(job, lambda: job.step(*rows), "no batch was drawn")


def test_rows_of_another_source_in_place_of_the_drawn_batch_are_refused(job: Any) -> None:
    job.run(1)

    def own() -> None:
        images, _ = next(batches(job))
        rows = job.loader.dataset[: len(images)]
        job.step(*rows)

    refused(job, own, "not a batch of the guarded loader")


def test_inputs_that_the_script_changes_are_taken_where_they_always_are(
    new_training_dataset: NewDataset, new_job: NewJob
) -> None:
    job = new_job(new_training_dataset())
    for images, labels in job.loader:
        job.step(images * 0.5 + 0.1, labels)
    assert job.guard.steps == len(job.loader)


def test_a_step_may_be_tried_again_when_it_failed(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = next(batches(job))
    noise = job.optimizer.noise_multiplier
    job.optimizer.noise_multiplier = math.nan
    with pytest.raises(UnsupportedPlan, match="noise_multiplier"):
        job.step(images, labels)
    job.optimizer.noise_multiplier = noise
    job.step(images, labels)
    assert job.guard.steps == 1


def test_an_unclipped_loss_in_ghost_clipping_is_refused(
    new_training_dataset: NewDataset, new_job: NewJob
) -> None:
    job = new_job(new_training_dataset(), grad_sample_mode="ghost")

    def raw() -> None:
        images, labels = next(batches(job))
        job.optimizer.zero_grad()
        nn.functional.cross_entropy(job.model(images), labels).backward()
        job.optimizer.step()

    refused(job, raw, "ghost clipping")


def test_a_row_of_another_source_in_place_of_an_empty_draw_is_refused(
    new_training_dataset: NewDataset, new_job: NewJob
) -> None:
    rows = TensorDataset(torch.randn(24, 64), torch.randint(0, 10, (24,)))
    job = new_job(new_training_dataset(), rows=rows, batch_size=1, grad_sample_mode="ghost")
    images, labels = next(one for one in (next(batches(job)) for _ in range(100)) if not len(one[0]))
    job.backward(images, labels)
    images, labels = next(iter(DataLoader(rows, batch_size=1, shuffle=True)))
    job.criterion(job.model(images), labels).backward()
    with pytest.raises(UnsupportedPlan):
        job.optimizer.step()
    assert job.guard.steps == 0


# -- the memory manager


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_pass_left_in_the_middle_of_a_draw_leaves_nothing_behind(
    new_training_dataset: NewDataset, new_job: NewJob, charged_steps: ChargedSteps, num_workers: int
) -> None:
    """Opacus keeps its sum and, with workers, a queue of signals for batches that nobody gets any more."""
    job = new_job(new_training_dataset(), num_workers=num_workers)
    with managed(job) as physical:
        for images, labels in physical:
            job.step(images, labels)
            break
    assert job.optimizer._is_last_step_skipped
    job.run(1)
    assert job.guard.steps == 1
    job.run(physical=16)
    job.guard.close()
    assert job.guard.steps == charged_steps(job.guard.dataset) == 1 + len(job.loader)


def test_a_physical_batch_left_out_is_refused(job: Any) -> None:
    def leaving_out() -> None:
        with managed(job) as physical:
            for number, (images, labels) in enumerate(physical):
                if number != 1:
                    job.step(images, labels)

    refused(job, leaving_out, "passed over|first part")


def test_a_physical_batch_twice_is_refused(job: Any) -> None:
    def twice() -> None:
        with managed(job) as physical:
            images, labels = next(iter(physical))
            job.step(images, labels)
            job.step(images, labels)

    refused(job, twice, "no batch was drawn")


def test_a_manager_over_another_loader_or_optimizer_is_refused(
    job: Any, digits: TensorDataset, new_training_dataset: NewDataset, new_job: NewJob
) -> None:
    other = new_job(new_training_dataset())
    plain = DataLoader(digits, batch_size=64)
    for loader, optimizer in ((plain, job.optimizer), (job.loader, other.optimizer)):
        with (
            pytest.raises(UnsupportedPlan, match="one guard"),
            BatchMemoryManager(data_loader=loader, max_physical_batch_size=16, optimizer=optimizer),
        ):
            pass


def test_a_clip_norm_lowered_inside_a_draw_is_charged_at_the_higher_one(
    new_training_dataset: NewDataset, new_job: NewJob, client: Client
) -> None:
    job = new_job(new_training_dataset())
    with managed(job, 32) as physical:
        for images, labels in physical:
            job.step(images, labels)
            if job.guard.steps:
                break
            job.optimizer.max_grad_norm = 0.5
    assert noise_charged(client, job.guard.dataset) == [0.5]


def noise_charged(client: Client, dataset: str) -> list[float]:
    entries = [item["entry"] for item in client.ledger(dataset, after=1)]
    charges = [entry["command"]["charges"][0] for entry in entries if "command" in entry]
    return [float(charge["mechanism"]["base"]["noise_multiplier"]) for charge in charges]


def rates_charged(client: Client, dataset: str) -> list[float]:
    entries = [item["entry"] for item in client.ledger(dataset, after=1)]
    charges = [entry["command"]["charges"][0] for entry in entries if "command" in entry]
    return [float(charge["mechanism"]["sampling_rate"]) for charge in charges]


# -- other loaders, other optimizers


def test_only_the_guarded_loaders_batches_are_taken(job: Any, digits: TensorDataset) -> None:
    shuffled = DataLoader(digits, batch_size=64, shuffle=True)
    for other in (shuffled, [next(iter(shuffled))], DPDataLoader(digits, sample_rate=0.5)):
        with pytest.raises(UnsupportedPlan, match="guarded loader"):
            job.guard.batches(other)
    with managed(job) as physical:
        assert len(job.guard.batches(physical)) == len(physical)
    assert len(job.guard.batches(job.loader)) == len(job.loader) == 29


def test_the_sampler_in_another_loader_hands_out_nothing(job: Any, digits: TensorDataset) -> None:
    again = DataLoader(digits, batch_sampler=job.loader.batch_sampler)
    refused(job, lambda: job.step(*next(iter(again))), "no batch was drawn")


def test_two_optimizers_on_one_draw_are_refused(new_training_dataset: NewDataset, client: Client) -> None:
    """One cohort, two releases: at z = .6, q = .01 and 1,000 batches ε is 22.4, not 11.3."""
    from odometer_client.training.opacus import BudgetedPrivacyEngine

    rows = TensorDataset(torch.randn(200, 8), torch.randint(0, 2, (200,)))
    engine = BudgetedPrivacyEngine(client=client, dataset=new_training_dataset())
    heads = []
    for _ in range(2):
        head = nn.Linear(8, 2)
        made = engine.make_private(
            module=head,
            optimizer=torch.optim.SGD(head.parameters(), lr=0.1),
            data_loader=DataLoader(rows, batch_size=50),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        heads.append(made)
    (one, first, loader), (other, second, _) = heads
    x, y = next(iter(loader))
    for model, optimizer in ((one, first), (other, second)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
    first.step()
    with pytest.raises(UnsupportedPlan, match="no batch was drawn"):
        second.step()
    next(iter(heads[1][2]))  # a draw of its own, but the gradient is of the other's
    nn.functional.cross_entropy(other(x), y).backward()
    with pytest.raises(UnsupportedPlan, match="another draw"):
        second.step()


def test_the_inner_optimizer_does_not_step_by_itself(job: Any) -> None:
    def inner() -> None:
        job.backward(*next(batches(job)))
        job.optimizer.clip_and_accumulate() if not hasattr(job.optimizer, "accumulate") else None
        job.optimizer.original_optimizer.step()

    before = weights(job)
    with pytest.raises(UnsupportedPlan, match="inner optimizer"):
        inner()
    assert same(before, weights(job))


def test_a_copied_optimizer_does_not_step(job: Any) -> None:
    job.backward(*next(batches(job)))
    twin = copy.deepcopy(job.optimizer)
    for step in (twin.step, copy.copy(job.optimizer).step):
        with pytest.raises(UnsupportedPlan, match="copy"):
            step()
    with pytest.raises(UnsupportedPlan, match="inner optimizer"):
        twin.original_optimizer.step()
    assert job.guard.steps == 0
    job.optimizer.step()
    assert job.guard.steps == 1


def test_a_parameter_frozen_with_its_gradient_is_refused(job: Any) -> None:
    def freezing() -> None:
        job.backward(*next(batches(job)))
        frozen = next(iter(job.model.parameters()))
        frozen.requires_grad_(False)
        try:
            job.optimizer.step()
        finally:
            frozen.requires_grad_(True)
            frozen.grad = None

    with pytest.raises(UnsupportedPlan, match="without noise"):
        freezing()
    assert job.guard.steps == 0


# -- what is read at the step


def test_a_rate_changed_later_is_charged_at_its_draw(job: Any, client: Client) -> None:
    job.run(1)
    job.loader.batch_sampler.sample_rate = 0.4
    job.run(1)
    assert rates_charged(client, job.guard.dataset) == [
        dp_sgd_step(1.0, rate).sampling_rate for rate in (1 / 29, 0.4)
    ]


def test_a_clip_schedule_in_ghost_clipping_is_charged_as_the_lower_noise(
    new_training_dataset: NewDataset, new_job: NewJob, client: Client
) -> None:
    """The model goes on clipping at the norm of make_private: only the noise falls."""
    job = new_job(new_training_dataset(), grad_sample_mode="ghost")
    schedule = ExponentialGradClip(job.optimizer, gamma=0.5)
    for _ in range(2):
        job.run(1)
        schedule.step()
    assert noise_charged(client, job.guard.dataset) == [1.0, 0.5]


def test_a_clip_schedule_elsewhere_changes_both(
    new_training_dataset: NewDataset, new_job: NewJob, client: Client
) -> None:
    job = new_job(new_training_dataset(), engine={"block": 1})
    schedule = ExponentialGradClip(job.optimizer, gamma=0.5)
    for _ in range(2):
        job.run(1)
        schedule.step()
    assert noise_charged(client, job.guard.dataset) == [1.0, 1.0]


def test_a_clip_schedule_per_layer_lowers_the_noise_alone(
    new_training_dataset: NewDataset, new_job: NewJob, client: Client
) -> None:
    job = new_job(new_training_dataset(), clipping="per_layer", max_grad_norm=[0.5] * 4)
    job.optimizer.max_grad_norm *= 0.5
    job.run(1)
    assert noise_charged(client, job.guard.dataset) == [0.5]


@pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan, "high"])
@pytest.mark.parametrize("what", ["max_grad_norm", "noise_multiplier"])
def test_what_is_no_norm_and_no_noise_is_refused_before_and_between(
    new_training_dataset: NewDataset, new_job: NewJob, charged_steps: ChargedSteps, what: str, value: Any
) -> None:
    dataset = new_training_dataset()
    with pytest.raises(UnsupportedPlan, match=what):
        new_job(dataset, **{what: value})
    job = new_job(dataset)
    setattr(job.optimizer, what, value)
    with pytest.raises(UnsupportedPlan, match=what):
        job.run(1)
    assert charged_steps(dataset) == 0


def test_a_divisor_that_is_the_size_of_the_batch_is_refused(job: Any) -> None:
    images, labels = next(batches(job))
    job.optimizer.expected_batch_size = len(images)
    with pytest.raises(UnsupportedPlan, match="divisor"):
        job.step(images, labels)


def test_random_rows_for_empty_batches_are_refused(
    job: Any, new_training_dataset: NewDataset, new_job: NewJob
) -> None:
    with pytest.raises(UnsupportedPlan, match="rand_on_empty"):
        new_job(new_training_dataset(), rand_on_empty=True)
    job.loader.collate_fn.rand_on_empty = True
    with pytest.raises(UnsupportedPlan, match="rand_on_empty"):
        job.run(1)


def test_the_same_draws_in_each_epoch_are_refused(job: Any) -> None:
    def reseeding() -> None:
        for _ in range(2):
            torch.manual_seed(3)
            job.run(1)

    refused(job, reseeding, "drawn already", after=1)


def test_the_same_noise_in_each_step_is_refused(new_training_dataset: NewDataset, new_job: NewJob) -> None:
    noise = torch.Generator()
    job = new_job(new_training_dataset(), noise_generator=noise)

    noise.manual_seed(3)
    job.run(1)
    noise.manual_seed(3)
    with pytest.raises(UnsupportedPlan, match="noise of this step"):
        job.run(1)
    noise.manual_seed(4)
    job.run(1)
    assert job.guard.steps == 2


def test_coarse_random_numbers_are_refused(job: Any) -> None:
    """In half precision a rate of .01 is one of .0112."""

    def coarse() -> None:
        passing = batches(job)
        torch.set_default_dtype(torch.float16)
        try:
            batch = next(passing)
        finally:
            torch.set_default_dtype(torch.float32)
        job.step(*batch)

    refused(job, coarse, "float16")
