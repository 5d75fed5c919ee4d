"""The commands and the code of the recipes run, against a real service."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from odometer_client.testing import Service

RECIPES = Path(__file__).resolve().parents[2] / "docs" / "recipes"


def blocks(recipe: str, language: str) -> list[str]:
    """The code blocks of that language, in order."""
    text = (RECIPES / recipe).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run_commands(block: str, service: Service) -> str:
    """Runs each line as the admin with the `odometer` of this environment, and gives all output."""
    environment = {**os.environ, "ODOMETER_URL": service.url, "ODOMETER_KEY": str(service.admin_key)}
    said = []
    for line in block.splitlines():
        program, *arguments = shlex.split(line)
        command = [str(Path(sys.executable).parent / program), *arguments]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        said.append(ran.stdout)
    return "".join(said)


@pytest.mark.filterwarnings("ignore:Secure RNG turned off")
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("recipe", ["opacus.md", "opendp.md", "sparse_vector.md", "confident_gnmax.md"])
def test_a_recipe_runs(
    recipe: str,
    service: Service,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = run_commands("".join(blocks(recipe, "sh")), service)
    (charger,) = re.findall(r"po_[\w-]+", said)
    monkeypatch.setenv("ODOMETER_URL", service.url)
    monkeypatch.setenv("ODOMETER_KEY", charger)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    for block in blocks(recipe, "python"):
        exec(block, namespace)
    assert "does not fit" in capsys.readouterr().out
    namespace["client"].close()
