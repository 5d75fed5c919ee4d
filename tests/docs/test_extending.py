"""The recipes of docs/extending.md work to the letter, in a copy of the project."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pages
import pytest

PAGE = (pages.ROOT / "docs" / "extending.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`([\w/]+\.py)`")
FOLDERS = ("accountant", "api", "clients/python/src")
GENERATORS = ("tools", "docs")


def _copied(folder: Path) -> Path:
    for name in (*FOLDERS, *GENERATORS):
        ignored = shutil.ignore_patterns("__pycache__", "*.png")
        shutil.copytree(pages.ROOT / name, folder / name, ignore=ignored)
    return folder


def _changed(text: str, diff: str) -> str:
    """`text` with the lines that a block marks with + in place of those with -."""
    lines = diff.splitlines()
    before = "\n".join(line[1:] for line in lines if not line.startswith("+"))
    after = "\n".join(line[1:] for line in lines if not line.startswith("-"))
    assert text.count(f"{before}\n") == 1, f"these lines are not there once:\n{before}"
    return text.replace(f"{before}\n", f"{after}\n")


def _run(language: str, code: str, folder: Path) -> str:
    """The output of a block in the copy. `odometer` and `make generate` are those of the copy."""
    own = {"odometer": "-m privacy_odometer", "make generate": "tools/generate.py"}
    for command, arguments in own.items():
        code = re.sub(rf"^{command}\b", f"'{sys.executable}' {arguments}", code, flags=re.MULTILINE)
    path = os.pathsep.join(str(folder / name) for name in FOLDERS)
    done = subprocess.run(
        [sys.executable, "-c", code] if language == "python" else ["bash", "-euc", code],
        env={**os.environ, "PYTHONPATH": path},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("section", SECTIONS)
def test_a_recipe_followed_to_the_letter_works(section: str, tmp_path: Path) -> None:
    """Its blocks, applied to the files that it names, run and show what it says."""
    folder, output, shown = _copied(tmp_path), None, 0
    for found in BLOCK.finditer(SECTIONS[section]):
        language, code = found[1], textwrap.dedent(found[2])
        named = NAMED.findall(SECTIONS[section][: found.start()])[-1:]
        if language == "text":
            assert output is not None
            assert output.endswith(code)
            shown += 1
        elif language == "diff":
            file = folder / named[0]
            file.write_text(_changed(file.read_text("utf-8"), code), "utf-8")
        elif code.startswith('"""'):
            assert not (folder / named[0]).exists()
            (folder / named[0]).write_text(code, "utf-8")
        else:
            output = _run(language, code, folder)
    assert shown == 1


@pytest.mark.parametrize("section", SECTIONS)
def test_a_recipe_names_files_that_exist(section: str) -> None:
    """Every path of a recipe is there, but for the files that the recipe makes."""
    paths = set(re.findall(r"`((?:accountant|api|clients|tests|docs)/[\w./]*)`", SECTIONS[section]))
    made = set(re.findall(r"^ *`([\w/]+\.py)`:$", SECTIONS[section], re.MULTILINE))
    assert paths
    assert not [path for path in paths - made if not (pages.ROOT / path).exists()]


def test_there_are_six_recipes() -> None:
    """One for each kind of thing that people add."""
    assert len(SECTIONS) == 6
