"""One verdict for all ranks: rank 0 charges and tells the others, before any of them moves on."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed

from odometer_client.base import OdometerError, UnsupportedPlan
from odometer_client.blocks import Buy
from odometer_client.mechanism import Mechanism

T = TypeVar("T")


def world_size(group: Any = None) -> int:
    """How many processes train together; 1 without torch.distributed."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_world_size(group))
    return 1


def rank(group: Any = None) -> int:
    """This process among them; 0 without torch.distributed."""
    return int(torch.distributed.get_rank(group)) if world_size(group) > 1 else 0


def decided_by_rank_zero(buy: Buy, group: Any = None) -> Buy:
    """`buy` for a group of ranks that step together: all get the same answer or the same error.

    Every rank must call it for the same step; ranks that run different mechanisms all get
    `UnsupportedPlan`, and nothing is charged.
    """

    def buy_together(mechanism: Mechanism, wanted: int) -> int:
        everyones = gathered(mechanism, group)
        if any(other != mechanism for other in everyones):
            raise UnsupportedPlan(f"The ranks of one step run different mechanisms: {everyones}")
        return int(told_by_rank_zero(lambda: buy(mechanism, wanted), group))

    return buy_together


def told_by_rank_zero(ask: Callable[[], T], group: Any = None) -> T:
    """What rank 0 finds out, or its error, on every rank. Every rank must call it."""
    if world_size(group) == 1:
        return ask()
    verdict: list[Any] = [None]
    if rank(group) == 0:
        verdict = [_verdict(ask)]
    source = 0 if group is None else torch.distributed.get_global_rank(group, 0)
    torch.distributed.broadcast_object_list(verdict, src=source, group=group)
    if isinstance(verdict[0], BaseException):
        raise verdict[0]
    return verdict[0]  # type: ignore[no-any-return]


def gathered(value: Any, group: Any = None) -> list[Any]:
    """Each rank's `value`, in the order of ranks."""
    values: list[Any] = [None] * world_size(group)
    torch.distributed.all_gather_object(values, value, group=group)
    return values


def _verdict(ask: Callable[[], Any]) -> Any:
    """The answer to broadcast. Nothing may escape: the other ranks are waiting for it."""
    try:
        return ask()
    except OdometerError as error:
        return error
    except BaseException as error:  # noqa: BLE001
        return OdometerError(f"rank 0 could not charge: {type(error).__name__}: {error}")
