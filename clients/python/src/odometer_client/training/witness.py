"""Which batches a model's backward passes came from, as far as their tensors can be recognised.

A batch that was changed on its way to the model (another device or type, augmented) has new storage and is
not recognised. Then the count of draws and of records alone must do.
"""

import functools
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from odometer_client.base import UnsupportedPlan
from odometer_client.training.draws import Draws, Piece, known, tensors


@dataclass(frozen=True, eq=False)
class Forward:
    """One forward pass with gradients."""

    pieces: frozenset[Piece]
    """The pieces whose tensors went in."""
    any_tensor: bool
    after: Piece | None
    """What had been handed out last."""


class Witness:
    """Watches one model. `module` is what `make_private` returned, None where it is not known."""

    def __init__(self, module: Any, draws: Draws, *, demanding: bool = True) -> None:
        self._module = module
        self._draws = draws
        self._demanding = demanding
        self._recognises: bool | None = None
        self._backward: dict[tuple[Forward, bool], None] = {}
        inner = getattr(module, "_module", module)
        if isinstance(inner, torch.nn.Module):
            me = weakref.ref(self)
            inner.register_forward_hook(functools.partial(_forward, me), with_kwargs=True)

    def clear(self) -> None:
        """The gradients of what was seen are gone from the parameters."""
        self._backward.clear()

    def check(self, piece: Piece, *, ghost: bool) -> None:
        """Whether the gradient may be of `piece` alone. Raises UnsupportedPlan."""
        forwards = list(self._backward)
        if ghost and [clipped for _, clipped in forwards] != [True]:
            raise UnsupportedPlan(
                "in ghost clipping the gradient of a step must come from one backward() of the loss that the "
                "criterion of make_private gives: another loss's gradient is not clipped"
            )
        recognised = False
        for forward, _ in forwards:
            if any(one is not piece for one in forward.pieces):
                raise UnsupportedPlan(
                    "the gradient is of a batch that another draw made: an older one, or another loader's. "
                    "Take one step for each batch, on that batch, before the next is drawn"
                )
            if forward.after is not piece:
                raise UnsupportedPlan(
                    "the model's forward pass came before the batch of this step was drawn. Take one step "
                    "for each batch, on that batch, before the next is drawn"
                )
            recognised |= bool(forward.pieces) or not forward.any_tensor
        if self._recognises is None and forwards:
            self._recognises = recognised
        elif self._recognises and not recognised and self._demanding:
            raise UnsupportedPlan(
                "the model's input is not a batch of the guarded loader, as it was until now. If your code "
                "changes batches on their way to the model, give check_inputs=False"
            )

    def saw(self, arguments: Any, output: Any) -> None:
        """A forward pass."""
        given = list(tensors(arguments))
        pieces = frozenset(found for one in given if (found := known(one)) is not None)
        forward = Forward(pieces, bool(given), self._draws.latest)
        for one in tensors(_plain(output)):
            if one.requires_grad:
                one.register_hook(functools.partial(_backward, weakref.ref(self), forward))

    def backward(self, forward: Forward) -> None:
        """Its backward pass; in ghost clipping the second one of two, without hooks, has the gradient."""
        clipped = not getattr(self._module, "hooks_enabled", True)
        self._backward[(forward, clipped)] = None


def _plain(output: Any) -> Any:
    """An output's parts where it is neither a tensor nor a container: a dataclass's fields."""
    if isinstance(output, torch.Tensor | Mapping | list | tuple):
        return output
    return list(vars(output).values()) if hasattr(output, "__dict__") else ()


def _forward(
    witness: "weakref.ref[Witness]", _module: Any, arguments: Any, keywords: Any, output: Any
) -> None:
    found = witness()
    if found is not None and torch.is_grad_enabled():
        found.saw((arguments, keywords), output)


def _backward(witness: "weakref.ref[Witness]", forward: Forward, _gradient: Any) -> None:
    found = witness()
    if found is not None:
        found.backward(forward)
