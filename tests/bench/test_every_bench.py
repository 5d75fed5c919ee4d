"""Every script in bench/ runs at a tiny size, and ends as a bench does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TINY: dict[str, list[str]] = {
    "chaos": ["--events", "3", "--seed", "1"],
    "charge": ["--pairs", "1", "--requests", "40"],
    "charge_redis": ["--pairs", "1", "--requests", "40", "--datasets", "8"],
    "curve": ["--draws", "1", "--kind", "gaussian", "--peer", "dp_accounting"],
    "failover": ["--failovers", "1", "--only", "wait", "--seed", "1"],
    "growth": ["--entries", "200", "--rounds", "4"],
    "price": [],
    "scopes": ["--units", "200", "--shards", "2", "--rounds", "1", "--number", "4"],
    "sessions": ["--answers", "50"],
    "stalled": ["--pairs", "1", "--seconds", "1"],
}
"""What makes each script small. At this size a ratio says nothing: only that the script works is tested."""
AT_MOST = ("charge-redis-spread", "growth", "price", "scopes", "stalled")
"""Ratios that must not be above their bar; of the others none may be below."""
LAST = re.compile(r"(?P<name>\S+) ratio=(?P<ratio>[0-9.e+-]+) bar=(?P<bar>[0-9.e+-]+)")
SCRIPTS = sorted(path.stem for path in (ROOT / "bench").glob("*.py") if "\nif __name__" in path.read_text())


def test_no_script_is_forgotten() -> None:
    """A new bench says here how it is made small."""
    assert sorted(TINY) == SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS)
def test_it_runs(script: str) -> None:
    """It ends with its ratio and its bar, and exits with 0 where the bar is kept, else with 1."""
    command = [sys.executable, str(ROOT / "bench" / f"{script}.py"), *TINY[script]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    lines = done.stdout.splitlines()
    assert "Traceback" not in done.stderr, done.stderr
    last = LAST.fullmatch(lines[-1] if lines else "")
    assert last is not None, (lines[-3:], done.stderr[-2000:])
    results = [found for line in lines if (found := LAST.fullmatch(line))]
    if not any(float(one["ratio"]) == float(one["bar"]) for one in results):  # as printed, to a few digits
        assert done.returncode == (0 if all(_kept(one) for one in results) else 1), results


def _kept(result: re.Match[str]) -> bool:
    ratio, bar = float(result["ratio"]), float(result["bar"])
    at_most = result["name"] in AT_MOST or result["name"].startswith("scopes-")
    return ratio <= bar if at_most else ratio >= bar
