"""`make demo` as a user sees it: both jobs run until refused, and the ledger verifies."""

import re
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "demo" / "run.py"


def test_the_demo_runs_to_its_end() -> None:
    ran = subprocess.run([sys.executable, DEMO], capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    steps, charged = re.search(r"after (\d+) steps \((\d+) charged\)", ran.stdout).groups()  # type: ignore[union-attr]
    assert 50 < int(steps) == int(charged)
    assert float(re.search(r"([\d.]+)% of held-out", ran.stdout)[1]) > 80  # type: ignore[index]
    assert "refused: would fit" in ran.stdout
    for part in ("odometer status", "odometer verify", "digits", "diabetes"):
        assert part in ran.stdout
