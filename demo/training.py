"""DP-SGD with Opacus on scikit-learn's handwritten digits, until the budget refuses."""

import warnings
from dataclasses import dataclass

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from odometer_client import Client
from odometer_client.training.opacus import BudgetedPrivacyEngine

NOISE_MULTIPLIER = 2.0
CLIP_NORM = 1.0
EXPECTED_BATCH = 256
BLOCK = 25
MOST_STEPS = 1000


@dataclass(frozen=True)
class Trained:
    """The result of a run."""

    accuracy: float
    steps: int
    charged: int
    refused: str | None


def train(client: Client, dataset: str, most_steps: int = MOST_STEPS) -> Trained:
    """Train a small network; every step is charged to `dataset` before its gradient moves a weight."""
    warnings.filterwarnings("ignore", message="Secure RNG turned off")
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    torch.manual_seed(0)
    protected, held_out = _rows()
    model: nn.Module = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    engine = BudgetedPrivacyEngine(client=client, dataset=dataset, block=BLOCK)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=2.0),
        data_loader=DataLoader(protected, batch_size=EXPECTED_BATCH),
        noise_multiplier=NOISE_MULTIPLIER,
        max_grad_norm=CLIP_NORM,
    )
    guard = engine.guard
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with guard, Progress(*columns) as progress:  # leaving the guard gives back the steps that did not run
        task = progress.add_task("training", total=most_steps, left="")
        while not guard.stopped and guard.steps < most_steps:
            for images, labels in guard.batches(loader):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
                left = guard.receipt.left[0] if guard.receipt else {"used": 0}
                progress.update(task, completed=guard.steps, left=f"{left['used']:.0%} of the budget used")
                if guard.steps >= most_steps:
                    break
        if guard.stopped:
            progress.update(task, total=guard.steps, left="the budget refuses: stopped")
    refused = guard.refusal.detail if guard.refusal else None
    return Trained(_accuracy(model, held_out), guard.steps, guard.charged, refused)


def _rows() -> tuple[TensorDataset, TensorDataset]:
    """The protected rows, and others that are not in the dataset: their accuracy tells nothing about it."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16, labels, test_size=0.2, random_state=0, stratify=labels)
    train_images, test_images = (torch.tensor(part, dtype=torch.float32) for part in parts[:2])
    train_labels, test_labels = (torch.tensor(part) for part in parts[2:])
    return TensorDataset(train_images, train_labels), TensorDataset(test_images, test_labels)


@torch.no_grad()
def _accuracy(model: nn.Module, rows: TensorDataset) -> float:
    images, labels = rows.tensors
    return float((model(images).argmax(dim=1) == labels).float().mean())
