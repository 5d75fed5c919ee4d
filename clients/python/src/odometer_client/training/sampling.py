"""How a PyTorch loader draws its batches, read from the loader and never assumed."""

import secrets
from typing import Any, Final

import torch
from opacus.utils.batch_memory_manager import BatchSplittingSampler
from opacus.utils.uniform_sampler import (
    DistributedUniformWithReplacementSampler,
    UniformWithReplacementSampler,
)

from odometer_client.base import UnsupportedPlan
from odometer_client.training.distributed import gathered, world_size

LEAST_LOCAL_BATCH: Final = 32
"""Least expected batch of a rank. The distributed sampler skips empty local batches, after which the ranks
are no longer in step; at 32 expected records a batch is empty with probability e^-32."""
_POISSON: Final = (UniformWithReplacementSampler, DistributedUniformWithReplacementSampler)


def poisson_sampler(data_loader: Any) -> Any:
    """The sampler that puts each record into a batch with one probability, independently of the others.

    Raises `UnsupportedPlan` for a loader that does not sample so: its batches may not be charged as if.
    """
    sampler = getattr(data_loader, "batch_sampler", None)
    if isinstance(sampler, BatchSplittingSampler):  # what BatchMemoryManager makes
        raise UnsupportedPlan("this is the loader of a BatchMemoryManager: give make_private's own")
    for known in _POISSON:
        if isinstance(sampler, known) and (
            hasattr(sampler, "odometer_draws") or type(sampler).__iter__ is known.__iter__
        ):
            return sampler
    raise UnsupportedPlan(
        f"This loader draws batches with {type(sampler).__name__}, which is not Poisson sampling, so its "
        "steps have no amplification to account for. Use the loader that make_private returns with "
        "poisson_sampling=True, or make one by opacus.data_loader.DPDataLoader.from_data_loader(loader)."
    )


def check_no_dummies(data_loader: Any) -> None:
    """Refuse random rows in place of an empty batch: one record against one is a distance of 2C, not C."""
    if getattr(data_loader.collate_fn, "rand_on_empty", False):
        raise UnsupportedPlan(
            "rand_on_empty=True puts a random row in place of an empty batch: a step with one record then "
            "differs from one without by up to twice the clip norm, and the noise covers it once. Leave it "
            "False"
        )


def rounding_beyond() -> int:
    """Multiples of 2^-24 to add where random numbers are not whole multiples of it: on a GPU."""
    return 0 if torch.get_default_device().type == "cpu" else 1


def check_distributed(data_loader: Any, group: Any = None) -> None:
    """Refuse a sampler that would put the ranks out of step, or let their draws depend on each other."""
    sampler = data_loader.batch_sampler
    if not isinstance(sampler, DistributedUniformWithReplacementSampler):
        raise UnsupportedPlan(
            f"{world_size(group)} ranks train together, but each draws from the whole dataset. Wrap the "
            "model in opacus.distributed.DifferentiallyPrivateDistributedDataParallel before make_private."
        )
    smallest = sampler.sample_rate * (sampler.total_size // sampler.num_replicas)
    if smallest < LEAST_LOCAL_BATCH:
        raise UnsupportedPlan(
            f"A rank's batch has {smallest:.1f} records on average. Opacus skips a rank's empty batches, "
            f"which puts the ranks out of step: give a batch of at least {LEAST_LOCAL_BATCH} per rank."
        )
    seeds = gathered(_seed(sampler.generator), group)
    if len(set(seeds)) < len(seeds):
        raise UnsupportedPlan(
            "The ranks draw their batches from the same random seed, so which records enter is not "
            "independent. Call torch.manual_seed(seed + rank) after the model is built, before this."
        )


def _seed(generator: Any) -> int:
    """What a sampler's randomness starts from; a random number where the system's own randomness is used."""
    try:
        return int(torch.initial_seed() if generator is None else generator.initial_seed())
    except (AttributeError, NotImplementedError, RuntimeError):
        return secrets.randbits(63)
