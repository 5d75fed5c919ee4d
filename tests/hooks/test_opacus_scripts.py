"""Scripts as people have them, with the engine changed and nothing else: their ends, and what they spend."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from odometer_client import Client
from odometer_client.rates import dp_sgd_step
from odometer_client.testing import Service

PLAIN = Path(__file__).with_name("plain_script.py").read_text()
ChargedSteps = Callable[[str], int]
STEP = dp_sgd_step(1.0, 1 / 10)
STEPS_THAT_FIT = 13


def changed(arguments: str, *lines: tuple[str, str]) -> str:
    """The script with a guarded engine; `lines` replaces others."""
    text = PLAIN.replace(
        "from opacus import PrivacyEngine",
        "import os\nimport sys\nimport warnings\nwarnings.simplefilter('ignore')\n"
        "from odometer_client import Client\n"
        "from odometer_client.training.opacus import BudgetedPrivacyEngine",
    ).replace(
        "engine = PrivacyEngine()",
        "client = Client(os.environ['ODOMETER_URL'], os.environ['ODOMETER_KEY'])\n"
        f"engine = BudgetedPrivacyEngine(client=client, dataset=sys.argv[1]{arguments})",
    )
    for old, new in lines:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.fixture
def start(service: Service, tmp_path: Path) -> Callable[..., "subprocess.Popen[str]"]:
    def start_one(text: str, dataset: str) -> "subprocess.Popen[str]":
        script = tmp_path / "train.py"
        script.write_text(text)
        environment = {**os.environ, "ODOMETER_URL": service.url, "ODOMETER_KEY": str(service.admin_key)}
        return subprocess.Popen(
            [sys.executable, script, dataset],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    return start_one


@pytest.fixture
def ran(start: Callable[..., "subprocess.Popen[str]"]) -> Callable[..., tuple[int, str, str]]:
    def run(text: str, dataset: str) -> tuple[int, str, str]:
        process = start(text, dataset)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    return run


@pytest.fixture
def fits_13(client: Client, new_training_dataset: Callable[..., str]) -> str:
    """A dataset on which exactly 13 steps of the script fit: one epoch of ten, and three."""
    probe = new_training_dataset(kind="renyi", order=8, epsilon=1000)
    client.charge(probe, STEP, STEPS_THAT_FIT)
    spent = next(one for one in client.dataset(probe).budgets)["spent"]
    return new_training_dataset(kind="renyi", order=8, epsilon=spent * 1.001)


@pytest.mark.parametrize(
    ("arguments", "status", "epochs"),
    [("", 0, 3), (", on_exhausted='raise'", 1, 1)],
    ids=["default", "raise"],
)
def test_a_budget_that_ends_in_an_epoch_is_said_and_exactly_its_steps_are_spent(
    ran: Callable[..., tuple[int, str, str]],
    fits_13: str,
    charged_steps: ChargedSteps,
    client: Client,
    arguments: str,
    status: int,
    epochs: int,
) -> None:
    done, out, err = ran(changed(arguments), fits_13)
    assert done == status, err
    assert out.count("epoch") == epochs
    assert ("stopped after 13 paid steps" in err) if status == 0 else ("BudgetExceeded" in err)
    assert charged_steps(fits_13) == STEPS_THAT_FIT
    assert not client.holds(fits_13)


def test_a_budget_without_room_for_a_step_is_an_exception(
    ran: Callable[..., tuple[int, str, str]],
    new_training_dataset: Callable[..., str],
    charged_steps: ChargedSteps,
) -> None:
    dataset = new_training_dataset(kind="renyi", order=8, epsilon=1e-9)
    status, out, err = ran(changed(""), dataset)
    assert status == 1
    assert "BudgetExceeded" in err
    assert "0 steps fit" in err  # said by make_private, before anything is loaded or computed
    assert "epoch" not in out
    assert charged_steps(dataset) == 0


ENDS: dict[str, tuple[tuple[str, str], int]] = {
    "an exception": (('print("epoch", epoch, flush=True)', "raise RuntimeError('mine')"), 1),
    "the client closed first": (('print("epoch", epoch, flush=True)', "client.close(); break"), 0),
    "forgotten": (
        (
            'print("epoch", epoch, flush=True)',
            "break\nimport gc\ndel engine, optimizer, loader\ngc.collect()",
        ),
        1,
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_what_was_not_used_comes_back_at_an_ordinary_end(
    ran: Callable[..., tuple[int, str, str]],
    new_training_dataset: Callable[..., str],
    charged_steps: ChargedSteps,
    client: Client,
    end: str,
) -> None:
    """Without `with` or `close`: ten steps in blocks of 1, 2, 4 and 8."""
    dataset = new_training_dataset()
    line, status = ENDS[end]
    done, _, err = ran(changed("", line), dataset)
    assert done == status, err
    assert charged_steps(dataset) == 10, err
    assert not client.holds(dataset)
    assert "stays spent" not in err


@pytest.mark.parametrize(
    ("before", "status"),
    [
        ("", 143),
        ("import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n", 7),
    ],
    ids=["no handler", "a handler of its own"],
)
def test_sigterm_gives_back_what_was_not_used(
    start: Callable[..., "subprocess.Popen[str]"],
    new_training_dataset: Callable[..., str],
    charged_steps: ChargedSteps,
    before: str,
    status: int,
) -> None:
    dataset = new_training_dataset()
    waiting = (
        'print("epoch", epoch, flush=True)',
        'print("epoch", flush=True); import time; time.sleep(100)',
    )
    text = changed("", waiting, ("torch.manual_seed(0)\n", f"{before}torch.manual_seed(0)\n"))
    process = start(text, dataset)
    assert process.stdout is not None
    assert process.stdout.readline() == "epoch\n"
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == status, err
    assert charged_steps(dataset) == 10


def test_what_stays_spent_is_said(
    ran: Callable[..., tuple[int, str, str]],
    new_training_dataset: Callable[..., str],
    charged_steps: ChargedSteps,
) -> None:
    dataset = new_training_dataset()
    away = ('print("epoch", epoch, flush=True)', "client._transport.close(); client._attempts = 1; break")
    status, _, err = ran(changed("", away), dataset)
    assert status == 0
    assert charged_steps(dataset) == 15
    assert "stays spent" in err
