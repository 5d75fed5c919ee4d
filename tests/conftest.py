"""For all tests: the folders that need a target of their own, and the refusal of skips where asked."""

import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

# Of a program that a test starts, and of those that it starts: not in the home of whoever runs the tests.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="odometer-tests-")

APART = ("bench", "browser", "hooks", "openapi", "system")
"""Folders under tests/ that need what a fresh machine lacks, or long. Collected only when they are named."""
LONG = {
    *("test_every_bench", "test_fifty_kills", "test_failover", "test_lost_places", "test_memory"),
    *("test_pages", "test_readme", "test_recipes", "test_redis_groups", "test_sessions_killed"),
    *("test_sessions_killed_often",),
}
"""Modules whose tests take ten seconds and more."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--no-skips`: a test that skips itself has not been run, so it counts as failed."""
    parser.addoption("--no-skips", action="store_true", help="count a skipped test or module as failed")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a folder of `APART` alone unless an argument of pytest lies in it."""
    here = Path(__file__).parent
    if collection_path.parent != here or collection_path.name not in APART:
        return None
    asked = [Path(config.invocation_params.dir, str(arg).split("::")[0]).resolve() for arg in config.args]
    return not any(path.is_relative_to(collection_path) for path in asked)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in a folder of `APART` with its name; what takes long comes first."""
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder in APART:
            item.add_marker(folder)
    # Several workers share the tests: a long one that is begun last would leave the others idle.
    items.sort(key=lambda item: item.path.stem not in LONG)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Under `--no-skips`, a skipped test failed. An expected failure (xfail) is not a skip."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and item.config.getoption("no_skips"):
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Under `--no-skips`, a module that skips itself whole failed."""
    report = yield
    if report.skipped and collector.config.getoption("no_skips"):
        _fail(report)
    return report


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"not run, and here a skip is a failure (--no-skips): {reason}"
