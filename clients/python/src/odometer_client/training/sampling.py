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


def poisson_rate(data_loader: Any) -> float:
    """The probability with which each record enters a batch, independently of the others.

    Raises `UnsupportedPlan` for a loader that does not sample so: its batches may not be charged as if.
    """
    sampler = data_loader.batch_sampler
    if isinstance(sampler, BatchSplittingSampler):  # what BatchMemoryManager makes
        sampler = sampler.sampler
    if isinstance(sampler, UniformWithReplacementSampler | DistributedUniformWithReplacementSampler):
        return float(sampler.sample_rate)
    raise UnsupportedPlan(
        f"This loader draws batches with {type(sampler).__name__}, which is not Poisson sampling, so its "
        "steps have no amplification to account for. Use the loader that make_private returns with "
        "poisson_sampling=True, or make one by opacus.data_loader.DPDataLoader.from_data_loader(loader)."
    )


def check_distributed(data_loader: Any, group: Any = None) -> None:
    """Refuse a sampler that would put the ranks out of step, or let their draws depend on each other."""
    sampler = data_loader.batch_sampler
    if isinstance(sampler, BatchSplittingSampler):
        sampler = sampler.sampler
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
