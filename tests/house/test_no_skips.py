"""The `--no-skips` flag and the folders apart, on small test suites of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parent.parent / "conftest.py"


def run(folder: Path, test: str, *options: str, name: str = "test_it.py") -> subprocess.CompletedProcess[str]:
    """Run pytest in `folder` on one test file, with our conftest and no other configuration."""
    shutil.copy(CONFTEST, folder / "conftest.py")
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"import pytest\n{test}\n")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  hooks: x\n  browser: x\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "skip",
    [
        "@pytest.mark.skip(reason='no framework')\ndef test_it(): pass",
        "def test_it(): pytest.skip('no framework')",
        "@pytest.fixture\ndef f(): pytest.skip('no framework')\ndef test_it(f): pass",
        "pytest.importorskip('no_such_framework', reason='no framework')\ndef test_it(): pass",
    ],
    ids=["marker", "call", "fixture", "module"],
)
def test_a_skip_is_a_failure_only_when_asked(tmp_path: Path, skip: str) -> None:
    """However a test skips itself, `--no-skips` fails the run and shows the reason."""
    assert run(tmp_path, skip).returncode != 1
    strict = run(tmp_path, skip, "--no-skips")
    assert strict.returncode != 0
    assert "no framework" in strict.stdout
    assert "here a skip is a failure" in strict.stdout


def test_an_expected_failure_is_not_a_skip(tmp_path: Path) -> None:
    """An xfail ran: it stays what it is under `--no-skips`."""
    assert run(tmp_path, "@pytest.mark.xfail\ndef test_it(): assert False", "--no-skips").returncode == 0


def test_a_folder_apart_runs_only_when_it_is_named(tmp_path: Path) -> None:
    """A plain run finds nothing in hooks/ (exit code 5: no tests); named, its tests run and bear the mark."""
    test = "def test_it(request): assert request.node.get_closest_marker('hooks')"
    assert run(tmp_path, test, name="hooks/test_it.py").returncode == 5
    assert "1 passed" in run(tmp_path, test, "hooks", name="hooks/test_it.py").stdout
    assert "1 passed" in run(tmp_path, test, "hooks/test_it.py::test_it", name="hooks/test_it.py").stdout
