"""A training job that is killed, closed early or resumed: what it held is spent, given back, or held anew."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odometer_client import Client
from odometer_client.testing import Service

JOB = Path(__file__).with_name("long_job.py")
StartJob = Callable[..., "LongJob"]
ChargedSteps = Callable[[str], int]


class LongJob:
    """A process that trains step by step, as told."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, JOB, json.dumps(plan)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ready = self.said()

    def said(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, line: str) -> str:
        """What it says after it was told `line`."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.said()

    def steps(self, count: int) -> None:
        """Let it take so many steps."""
        for _ in range(count):
            assert self.tell("step").startswith("step")

    def kill(self) -> None:
        """SIGKILL: nothing of it runs any more."""
        self.process.kill()
        self._wait()

    def end(self) -> None:
        """Let it close its guard and end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self._wait() == 0

    def _wait(self) -> int:
        status = self.process.wait(timeout=60)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None and not stream.closed:
                stream.close()
        return status


@pytest.fixture
def start(service: Service, tmp_path: Path) -> Iterator[StartJob]:
    """Starts jobs that share a checkpoint's file; what still runs at the end is killed."""
    jobs: list[LongJob] = []

    def start_one(dataset: str, **plan: Any) -> LongJob:
        checkpoint = str(tmp_path / "run.pt")
        where = {"url": service.url, "key": service.admin_key, "dataset": dataset, "checkpoint": checkpoint}
        jobs.append(LongJob({**where, "block": 10, **plan}))
        return jobs[-1]

    yield start_one
    for job in jobs:
        if job.process.poll() is None:
            job.kill()


def test_a_killed_jobs_hold_stays_spent(
    start: StartJob, new_training_dataset: Callable[..., str], charged_steps: ChargedSteps, client: Client
) -> None:
    dataset = new_training_dataset()
    job = start(dataset)
    job.steps(4)  # in blocks of 1, 2 and 4
    spent = client.odometer(dataset)["totals"]
    job.kill()
    assert charged_steps(dataset) == 1 + 2 + 4
    assert len(client.holds(dataset)) == 1
    assert client.odometer(dataset)["totals"] == spent


def test_a_job_that_ends_early_gives_back_what_it_did_not_use(
    start: StartJob, new_training_dataset: Callable[..., str], charged_steps: ChargedSteps, client: Client
) -> None:
    dataset = new_training_dataset()
    job = start(dataset)
    job.steps(4)
    assert charged_steps(dataset) == 1 + 2 + 4
    job.end()
    assert charged_steps(dataset) == 4
    assert not client.holds(dataset)


def test_a_job_killed_after_its_checkpoint_and_resumed_pays_again_for_the_steps_it_runs_again(
    start: StartJob, new_training_dataset: Callable[..., str], charged_steps: ChargedSteps
) -> None:
    dataset = new_training_dataset()
    job = start(dataset)
    job.steps(4)
    assert job.tell("save") == "saved"
    assert charged_steps(dataset) == 4  # given back with the checkpoint
    job.steps(2)
    job.kill()
    assert charged_steps(dataset) == 4 + 8  # the block of the steps since then: lost with the process
    resumed = start(dataset, resume=True)
    assert resumed.ready == "ready 4"
    assert charged_steps(dataset) == 12
    resumed.steps(2)
    assert charged_steps(dataset) == 12 + 1 + 2
    resumed.end()
    assert charged_steps(dataset) == 4 + 8 + 2
