"""What others make of the service's description of itself: a linter, and a client in another language."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Live, live

HERE = Path(__file__).parent
TOOLS = HERE / "node_modules" / ".bin"
QUIET = {"REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true", "NO_COLOR": "1"}
LONG_S = 300


@pytest.fixture(scope="module")
def service() -> Iterator[Live]:
    with live() as running:
        yield running


@pytest.fixture
def folder(service: Live, tmp_path: Path) -> Path:
    """A folder with the description as it is served, and the tools beside it."""
    (tmp_path / "openapi.json").write_text(service.ask("GET", "/openapi.json", None).text, "utf-8")
    (tmp_path / "node_modules").symlink_to(HERE / "node_modules")
    for name in ("charge.ts", "package.json", "tsconfig.json"):
        shutil.copy(HERE / name, tmp_path)
    return tmp_path


def run(folder: Path, *command: str | Path) -> str:
    """What a command prints; it has to succeed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **QUIET},
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def lint(folder: Path) -> list[str]:
    """What the linter's recommended rules find, warnings too."""
    command = [TOOLS / "redocly", "lint", "openapi.json", "--extends=recommended", "--format=json"]
    done = subprocess.run(
        [*command, "--max-problems=1000"],
        cwd=folder,
        env={**os.environ, **QUIET},
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    problems = json.loads(done.stdout[done.stdout.index("{") :])["problems"]
    return [f"{each['ruleId']}: {each['message']}" for each in problems]


def test_a_linters_recommended_rules_find_nothing(folder: Path) -> None:
    assert lint(folder) == []


def test_the_linter_would_find_kinds_that_cannot_be_told_apart(folder: Path) -> None:
    """So that finding nothing means something."""
    described = json.loads((folder / "openapi.json").read_text("utf-8"))
    described["components"]["schemas"]["Gaussian"]["required"].remove("kind")
    del described["servers"]
    (folder / "openapi.json").write_text(json.dumps(described), "utf-8")
    found = lint(folder)
    assert any(each.startswith("no-empty-servers") for each in found)
    assert any("`kind`" in each and "Gaussian" in each for each in found)


def test_a_generated_client_in_typescript_compiles_and_charges(service: Live, folder: Path) -> None:
    """It tells the mechanisms apart, at compile time; what it charges is in the ledger."""
    optional = "--default-non-nullable=false"  # what has a default can be left out
    run(folder, TOOLS / "openapi-typescript", "openapi.json", "--output", "schema.d.ts", optional)
    run(folder, TOOLS / "tsc", "--project", "tsconfig.json")
    said = json.loads(run(folder, "node", "charge.js", service.url, service.admin))
    assert said == {
        "opened": 201,
        "noise": 1.1,
        "first": [201, False, 2],
        "again": [200, True, 2],
        "many": [201, 2],
        "refused": [409, "/problems/budget-exceeded"],
        "checked": [200, True],
        "scopes": [200, 1],
        "read": [200, 3],
    }
    entries = service.ask("GET", "/v1/datasets/typed/ledger").json()["items"]
    assert [entry["entry"]["type"] for entry in entries] == ["opened", "charged", "charged"]
