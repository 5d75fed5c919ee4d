"""`odometer events`: a plan that is written as a DpEvent, charged or only checked."""

import json
from pathlib import Path
from typing import Any

import command_line
import pytest
from command_line import Run
from dp_accounting import dp_event as dpe

from odometer_client.dp_events import event_document

GAUSSIAN = {"class_name": "GaussianDpEvent", "noise_multiplier": 2.0}
PLAN = {"class_name": "SelfComposedDpEvent", "count": 4, "event": GAUSSIAN}
"""ρ = 4/(2·2²) = 0.5."""
UNDER = ("--adjacency", "add_remove")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Commands on a ledger of their own; the dataset `adult` has a budget of ρ = 1."""
    run = command_line.runner(COLUMNS="160", ODOMETER_URL=f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    opened = ("--unit", "person", "--adjacency", "add_remove", "--delta", "1e-6")
    run("dataset", "create", "adult", *opened, "--budget", "life:zcdp:rho=1")
    return run


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return written(tmp_path, PLAN)


def written(folder: Path, document: Any) -> Path:
    path = folder / "plan.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), "utf-8")
    return path


def entries(run: Run) -> int:
    """How many entries the ledger has: 1 until something is charged."""
    lines = run("ledger", "adult", "--json").stdout
    return len(lines.splitlines())


def test_a_plan_is_charged_as_a_whole(run: Run, plan: Path) -> None:
    said = run("events", "adult", plan, *UNDER).stdout
    assert "4 × gaussian noise_multiplier=2" in said
    assert "charged  adult, entry 2" in said
    assert "ρ 0.5" in said
    receipt = json.loads(run("events", "adult", plan, *UNDER, "--format", "json").stdout)
    assert (receipt["sequence"], receipt["charges"][0]["count"]) == (3, 4)


@pytest.mark.parametrize("check", [(), ("--check",)], ids=["charge", "check"])
def test_parts_that_lose_nothing_are_said(run: Run, tmp_path: Path, check: tuple[str, ...]) -> None:
    """In words for people; beside the document for programs, not in it."""
    never = PLAN | {"count": 0}
    path = written(tmp_path, {"class_name": "ComposedDpEvent", "events": [GAUSSIAN, never]})
    told = "Note: dp_event.events.1: SelfComposedDpEvent: runs 0 times: it loses nothing and is not charged."
    assert told in run("events", "adult", path, *UNDER, *check).stdout
    answer = run("events", "adult", path, *UNDER, *check, "--format", "json")
    assert told in answer.stderr
    assert told not in json.dumps(json.loads(answer.stdout))


def test_of_a_plan_without_a_loss_it_is_said_why(run: Run, tmp_path: Path) -> None:
    said = run("events", "adult", written(tmp_path, PLAN | {"count": 0}), *UNDER, status=1).stderr
    assert "nothing to charge" in said
    assert "dp_event: SelfComposedDpEvent: runs 0 times" in said


def test_a_check_says_whether_it_would_fit_and_charges_nothing(run: Run, plan: Path) -> None:
    said = run("events", "adult", plan, *UNDER, "--check").stdout
    assert "4 × gaussian noise_multiplier=2" in said
    assert "It would fit, and leave:" in said
    assert entries(run) == 1
    for _ in range(2):
        run("events", "adult", plan, *UNDER)
    assert "It would be refused." in run("events", "adult", plan, *UNDER, "--check", status=1).stdout
    answer = run("events", "adult", plan, *UNDER, "--check", "--format", "json", status=1).stdout
    assert json.loads(answer)["fits"] is False
    assert entries(run) == 3


def test_what_does_not_fit_is_refused_and_charges_nothing(run: Run, tmp_path: Path) -> None:
    too_much = written(tmp_path, PLAN | {"count": 9})
    run("events", "adult", too_much, *UNDER, status=1)
    assert entries(run) == 1


def test_asked_again_with_its_key_it_is_the_same(run: Run, plan: Path) -> None:
    for _ in range(2):
        said = run("events", "adult", plan, *UNDER, "--idempotency-key", "k").stdout
    assert "before, under the same key" in said
    assert entries(run) == 2


def test_a_live_event_as_the_client_writes_it_comes_from_the_standard_input(run: Run) -> None:
    event = dpe.PoissonSampledDpEvent(0.01, dpe.GaussianDpEvent(1.1))
    whole = json.dumps({"dp_event": event_document(dpe.SelfComposedDpEvent(event, 10))})
    said = run("events", "adult", "-", *UNDER, "--check", input=whole, status=1).stdout
    assert "10 × poisson_subsampled" in said


def test_it_may_be_charged_on_somebodys_behalf(run: Run, plan: Path) -> None:
    said = run("events", "adult", plan, *UNDER, "--principal", "alice").stdout
    assert "for      alice, requested by embedded" in said


@pytest.mark.parametrize(
    ("document", "said", "status"),
    [
        ({"class_name": "UnsupportedDpEvent"}, "UnsupportedDpEvent", 1),
        ({"class_name": "GausianDpEvent", "noise_multiplier": 2.0}, "GausianDpEvent", 1),
        ({"class_name": "NoOpDpEvent"}, "nothing to charge", 1),
        ({"kind": "gaussian", "noise_multiplier": 2.0}, "is not an event", 2),
        ([PLAN], "is not an event", 2),
        ("{", "not JSON", 2),
        ('{"class_name": "GaussianDpEvent", "noise_multiplier": NaN}', "NaN", 2),
        ('{"class_name": "a", "class_name": "b"}', "duplicate key 'class_name'", 2),
        (
            '{"class_name": "GaussianDpEvent", "noise_multiplier": 2.00000000000000000001}',
            "cannot be stored exactly",
            2,
        ),
        (" " * 300_000, "larger than 262144 bytes", 2),
    ],
    ids=lambda value: str(value)[:30],
)
@pytest.mark.parametrize("check", [(), ("--check",)], ids=["charge", "check"])
def test_what_has_no_sound_charge_is_not_charged(
    run: Run, tmp_path: Path, document: Any, said: str, status: int, check: tuple[str, ...]
) -> None:
    path = written(tmp_path, document)
    assert said in run("events", "adult", path, *UNDER, *check, status=status).output
    assert entries(run) == 1


def test_the_adjacency_has_to_be_said_and_to_be_the_datasets(run: Run, plan: Path) -> None:
    assert "--adjacency" in run("events", "adult", plan, status=2).output
    for check in ((), ("--check",)):
        run("events", "adult", plan, "--adjacency", "replace_one", *check, status=1)
    assert entries(run) == 1


def test_a_file_that_cannot_be_read_is_said(run: Run, tmp_path: Path) -> None:
    assert "cannot be read" in run("events", "adult", tmp_path / "none", *UNDER, status=2).output
    (tmp_path / "raw").write_bytes(b"\xff\xfe")
    assert "cannot be read" in run("events", "adult", tmp_path / "raw", *UNDER, status=2).output


def test_a_check_takes_no_key(run: Run, plan: Path) -> None:
    run("events", "adult", plan, *UNDER, "--check", "--idempotency-key", "k", status=2)
