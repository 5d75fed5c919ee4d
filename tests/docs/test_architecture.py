"""The page on the architecture names modules, classes and functions that exist."""

import ast
import re
from pathlib import Path

import pages
import pytest

ROOTS = {
    "odometer_accountant": pages.ROOT / "accountant" / "odometer_accountant",
    "privacy_odometer": pages.ROOT / "api" / "privacy_odometer",
    "odometer_client": pages.ROOT / "clients" / "python" / "src" / "odometer_client",
}
PAGE = pages.ROOT / "docs" / "architecture.md"
PACKAGES = {path.name for path in ROOTS["odometer_accountant"].iterdir() if path.is_dir()}
NAMES = sorted(set(re.findall(r"`([a-z_]+(?:\.\w+)+)`", PAGE.read_text("utf-8"))))


def _defined(body: list[ast.stmt], name: str) -> list[ast.stmt] | None:
    """The body of a class or function of that name; None when it is not defined here."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return node.body
    return None


def _exists(name: str) -> bool:
    """Whether `package.module.Class.method` is defined in that very file."""
    first, *rest = name.split(".")
    place = ROOTS[first] if first in ROOTS else ROOTS["odometer_accountant"] / first
    while rest and (place / rest[0]).is_dir():
        place /= rest.pop(0)
    if not rest:
        return place.is_dir()
    file: Path = place / f"{rest.pop(0)}.py"
    if not file.is_file():
        return False
    body: list[ast.stmt] | None = ast.parse(file.read_text("utf-8")).body
    for part in rest:
        body = None if body is None else _defined(body, part)
    return body is not None


@pytest.mark.parametrize("name", NAMES)
def test_what_the_walks_name_exists(name: str) -> None:
    """A step that names a function which has moved sends a reader to the wrong file."""
    assert name.split(".", maxsplit=1)[0] in {*ROOTS, *PACKAGES}
    assert _exists(name)


def test_every_package_has_a_row_in_the_table() -> None:
    """The table is generated; a package that the picture does not know would be missing from both."""
    text = PAGE.read_text("utf-8")
    assert all(f"\n| `{package}` |" in text for package in PACKAGES if package != "__pycache__")


def test_a_name_that_is_not_there_is_found() -> None:
    """The check can fail, for a module, a class and a method."""
    assert not _exists("ledger.nowhere.decide")
    assert not _exists("ledger.decide.nothing")
    assert not _exists("writer.writer.LedgerWriter.nothing")
