"""The Opacus guard under real torch.distributed, two processes: rank 0 decides, all ranks stop together."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odometer_client.testing import Service

JOB = Path(__file__).with_name("ddp_job.py")
RunRanks = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def run_ranks(service: Service, tmp_path: Path) -> RunRanks:
    """Runs the job on two ranks and gives what each reported."""

    def run(**plan: Any) -> list[dict[str, Any]]:
        plan = {"url": service.url, "key": service.admin_key, "block": 4, "epochs": 1, "physical": 32, **plan}
        ranks = [
            subprocess.Popen(
                [sys.executable, JOB, str(rank), "2", str(tmp_path / "ranks"), json.dumps(plan)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        reports = []
        for process in ranks:
            try:
                out, err = process.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                for other in ranks:
                    other.kill()
                raise
            assert process.returncode == 0, err
            reports.append(json.loads(out.splitlines()[-1]))
        return reports

    return run


def test_all_ranks_stop_at_the_same_step_with_the_same_weights(
    run_ranks: RunRanks, new_training_dataset: Callable[..., str], charged_steps: Callable[[str], int]
) -> None:
    dataset = new_training_dataset(kind="renyi", order=4, epsilon=0.25)
    first, second = run_ranks(dataset=dataset)
    assert first["stopped"]
    assert second["stopped"]
    assert first["steps"] == second["steps"] == first["local"] == second["local"] == charged_steps(dataset)
    assert first["steps"] == 11  # blocks of 1, 2, 4 and the 4 that still fit
    assert first["weights"] == second["weights"]


def test_steps_are_charged_once_for_all_ranks(
    run_ranks: RunRanks, new_training_dataset: Callable[..., str], charged_steps: Callable[[str], int]
) -> None:
    dataset = new_training_dataset(kind="renyi", order=4, epsilon=100)
    first, second = run_ranks(dataset=dataset, block=8)
    assert first["steps"] == second["steps"] == charged_steps(dataset) == 15
    assert first["asked"] > 15  # the physical batches of 15 logical ones
    assert first["weights"] == second["weights"]


def test_what_all_ranks_held_and_did_not_use_is_given_back_once(
    run_ranks: RunRanks, new_training_dataset: Callable[..., str], charged_steps: Callable[[str], int]
) -> None:
    dataset = new_training_dataset(kind="renyi", order=4, epsilon=100)
    reports = run_ranks(dataset=dataset, block=100, batch_size=96, close=True)
    assert [report["charged"] for report in reports] == [19, 31]  # rank 0 alone knows what came back
    assert [report["steps"] for report in reports] == [19, 19]
    assert charged_steps(dataset) == 19


def test_no_rank_moves_when_the_charge_fails(run_ranks: RunRanks, service: Service) -> None:
    reports = run_ranks(dataset="never-created")
    assert [report["error"] for report in reports] == ["UnknownDataset", "UnknownDataset"]


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"same_seed": True}, "same random seed"),
        ({"batch_size": 32}, "at least 32 per rank"),
        ({"wrap": False}, "is not distributed"),
    ],
    ids=["same seed", "small batch", "no DDP"],
)
def test_what_would_put_ranks_out_of_step_is_refused(
    run_ranks: RunRanks,
    new_training_dataset: Callable[..., str],
    charged_steps: Callable[[str], int],
    plan: dict[str, Any],
    said: str,
) -> None:
    dataset = new_training_dataset()
    for report in run_ranks(dataset=dataset, **plan):
        assert report["error"] == "UnsupportedPlan"
        assert said in report["detail"]
    assert charged_steps(dataset) == 0
