"""One rank of a real DP-SGD job under torch.distributed (gloo). Started by test_opacus_ddp.py.

python ddp_job.py RANK WORLD_SIZE STORE_FILE '{"url": ..., "key": ..., "dataset": ..., ...}'
prints one line of JSON: what happened on this rank.
"""

import json
import os
import sys
import warnings
from typing import Any

import torch
import torch.distributed
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from opacus.utils.batch_memory_manager import BatchMemoryManager
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from odometer_client import Client, OdometerError
from odometer_client.training.opacus import BudgetedPrivacyEngine


def train(rank: int, client: Client | None, plan: dict[str, Any]) -> dict[str, Any]:
    """Train until stopped or the plan's epochs are over; say where it ended."""
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    if plan.get("wrap", True):
        model = DifferentiallyPrivateDistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    images, labels = load_digits(return_X_y=True)
    rows = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    if not plan.get("same_seed", False):
        torch.manual_seed(1000 + rank)
    engine = BudgetedPrivacyEngine(client=client, dataset=plan["dataset"], block=plan["block"])
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=DataLoader(rows, batch_size=plan.get("batch_size", 128)),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    asked = 0
    for _ in range(plan["epochs"]):
        with BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=plan["physical"], optimizer=optimizer
        ) as physical:
            for x, y in engine.guard.batches(physical):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                asked += 1
                if rank == 0:
                    engine.guard.state_dict()  # as a job whose first rank alone saves checkpoints
    if plan.get("close"):
        engine.close()
    weights = [float(parameter.detach().sum()) for parameter in model.parameters()]
    local = sum(count for *_, count in engine.accountant.history)
    guard = engine.guard
    return {
        "steps": guard.steps,
        "charged": guard.charged,
        "stopped": guard.stopped,
        "asked": asked,
        "local": local,
        "weights": weights,
    }


def main() -> None:
    """Join the other ranks, train, report."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rank, world_size, store, plan = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
    torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=world_size)
    client = Client(plan["url"], plan["key"], attempts=2) if rank == 0 else None
    try:
        outcome = train(rank, client, plan)
    except OdometerError as error:
        outcome = {"error": type(error).__name__, "detail": str(error)}
    print(json.dumps(outcome), flush=True)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    os._exit(0)  # gloo's own threads sometimes outlive it


if __name__ == "__main__":
    main()
