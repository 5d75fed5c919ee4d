"""The command line starts light: commands that only speak HTTP never load the accountant's numerics."""

import subprocess
import sys

import pytest

HEAVY = ("numpy", "scipy", "mpmath", "fastapi", "starlette", "uvicorn", "odometer_accountant.mechanisms")
"""Modules that cost each command half a second or more together. (Typer itself loads pydantic.)"""
SCRIPT = """
import sys
from privacy_odometer.cli import main
try:
    main()
except SystemExit:
    pass
print(",".join(name for name in {heavy!r} if name in sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize("words", ["--help", "--version", "charge --help", "serve --help", "key list --help"])
def test_help_loads_no_numerics_and_no_server(words: str) -> None:
    """Help and version load neither numerics nor the web framework."""
    command = [sys.executable, "-c", SCRIPT.format(heavy=HEAVY), *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout
    assert done.stderr.strip() == ""


def test_a_command_over_http_loads_no_numerics() -> None:
    """A charge that finds no service loads neither numerics nor the web framework."""
    words = [
        "charge",
        "adult",
        "gaussian",
        "noise_multiplier=10",
        "--url",
        "http://127.0.0.1:9",
        "--key",
        "po_x",
    ]
    command = [sys.executable, "-c", SCRIPT.format(heavy=HEAVY), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "127.0.0.1:9" in done.stderr
    assert done.stderr.endswith("\n\n")  # the last line, the modules that were loaded, is empty
