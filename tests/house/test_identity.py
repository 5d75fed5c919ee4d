"""The start-up check that `accountant` and `api` are ours, seen from outside: in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import accountant.identity

HOME = Path(accountant.identity.__file__).resolve().parent.parent
MARKS = {"accountant": "identity.py", "api": "app.py"}


def package(folder: Path, name: str, *files: str) -> None:
    """A package in `folder` that shows when its code runs."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(f"print('the code of {folder.name}/{name} ran')\n")
    for file in files:
        (folder / name / file).write_text("")


def run(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run `code` with only `path` and the standard library to import from."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(folder) for folder in path)}
    command = [sys.executable, "-S", "-c", code]
    return subprocess.run(
        command, env=environment, cwd="/", capture_output=True, text=True, timeout=60, check=False
    )


def check(home: Path, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run our check, told that our packages lie in `home`."""
    identity = HOME / "accountant" / "identity.py"
    code = f"import runpy, pathlib; runpy.run_path({str(identity)!r})['check'](pathlib.Path({str(home)!r}))"
    return run(code, *path)


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A folder that holds both packages as an installation does."""
    for name, mark in MARKS.items():
        package(tmp_path / "ours", name, mark)
    return tmp_path / "ours"


def test_our_packages_side_by_side_pass(ours: Path) -> None:
    """Both packages from our own folder: nothing to say."""
    result = check(ours, ours)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("name", MARKS)
def test_a_package_that_shadows_ours_is_named_and_not_run(ours: Path, tmp_path: Path, name: str) -> None:
    """Someone else's package before ours on the path: refused, with its place and ours, its code not run."""
    package(tmp_path / "theirs", name, *MARKS.values())
    result = check(ours, tmp_path / "theirs", ours)
    assert result.returncode != 0
    assert (
        f"`{name}` of privacy-odometer is shadowed by another one in {tmp_path / 'theirs' / name}"
        in result.stderr
    )
    assert f"ours is in {ours / name}" in result.stderr
    assert "ran" not in result.stdout


@pytest.mark.parametrize("name", MARKS)
def test_a_package_that_was_written_over_is_refused(ours: Path, name: str) -> None:
    """Another distribution installed over our folder: what we need there is missing, and is named."""
    (ours / name / MARKS[name]).unlink()
    result = check(ours, ours)
    assert f"`{name}` of privacy-odometer in {ours / name} lacks {MARKS[name]}" in result.stderr


def test_a_folder_that_happens_to_bear_the_name_is_refused(ours: Path, tmp_path: Path) -> None:
    """A namespace package (a folder without __init__) counts when ours is not there at all."""
    (ours / "api" / "__init__.py").unlink()
    (tmp_path / "theirs" / "api").mkdir(parents=True)
    result = check(ours, tmp_path / "theirs", ours)
    assert f"shadowed by another one in {tmp_path / 'theirs' / 'api'}" in result.stderr


@pytest.mark.parametrize("name", MARKS)
def test_the_command_tells_a_person_and_stops(tmp_path: Path, name: str) -> None:
    """`odometer` under a shadowed name: one readable line, exit code 78, no traceback."""
    package(tmp_path / "theirs", name)
    result = run("import privacy_odometer; privacy_odometer.main()", tmp_path / "theirs", HOME)
    assert result.returncode == 78
    assert f"`{name}` of privacy-odometer is shadowed" in result.stderr
    assert "What helps: " in result.stderr
    assert "Traceback" not in result.stderr
    assert "ran" not in result.stdout
