"""A DP-SGD job that does as it is told until its standard input ends. Started by test_opacus_killed.py.

python long_job.py '{"url": …, "key": …, "dataset": …, "block": …, "checkpoint": …, "resume": …}'

prints "step N" after each step, then waits for a line: "step" for one more, "save" for a checkpoint.
"""

import json
import sys
import warnings
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from odometer_client import Client
from odometer_client.training.opacus import BudgetedPrivacyEngine


def main(plan: dict[str, Any]) -> None:
    """Train as told."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = TensorDataset(torch.randn(640, 8), torch.randint(0, 2, (640,)))
    model = nn.Linear(8, 2)
    with Client(plan["url"], plan["key"]) as client:
        engine = BudgetedPrivacyEngine(client=client, dataset=plan["dataset"], block=plan["block"])
        model, optimizer, loader = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=DataLoader(rows, batch_size=64),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        files = {"path": plan["checkpoint"], "module": model, "optimizer": optimizer}
        if plan.get("resume"):
            engine.load_checkpoint(**files)
        print(f"ready {engine.guard.steps}", flush=True)
        with engine.guard as guard:
            for line in sys.stdin:
                if line.strip() == "save":
                    engine.save_checkpoint(**files)
                    print("saved", flush=True)
                    continue
                x, y = next(iter(loader))
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                print(f"step {guard.steps}", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(json.loads(sys.argv[1]))
