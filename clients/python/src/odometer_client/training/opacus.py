"""Opacus: every step of DP-SGD is charged before its gradient leaves the optimizer.

    engine = BudgetedPrivacyEngine(client=client, dataset="patients")
    model, optimizer, loader = engine.make_private(module=..., optimizer=..., data_loader=..., ...)
    with engine.guard as guard:                    # at the end gives back what was held and not used
        for x, y in guard.batches(loader):         # ends when the budget refuses
            ...
            optimizer.step()

Each charge is tied to one draw of the loader's sampler: a step is the exposure of exactly the draw whose
batch it was taken on, charged after the noise is drawn and before the inner optimizer moves a weight or ranks
exchange anything. Where that is not certain the step is refused. Virtual steps (BatchMemoryManager) are no
release and not charged; an empty batch is one, and is. No hook sees losses or metrics that you print.

`guard` has the guard, `engine` the engine, `accountant` an accountant that Opacus makes by name, `draws` and
`loaders` the counting, `witness` what batch a gradient is of, `optimizers` what stands around a step, `plan`
the check before the first.
"""

from odometer_client.training.accountant import OdometerAccountant
from odometer_client.training.engine import BudgetedPrivacyEngine, UnseenHistory
from odometer_client.training.guard import Batches, OnExhausted, OpacusGuard
from odometer_client.training.plan import Plan

__all__ = [
    "Batches",
    "BudgetedPrivacyEngine",
    "OdometerAccountant",
    "OnExhausted",
    "OpacusGuard",
    "Plan",
    "UnseenHistory",
]
