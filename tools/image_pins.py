"""The packages of the image, by checksum: deploy/requirements.txt and deploy/requirements-build.txt.

python tools/image_pins.py     asks pip which files the pins of constraints.txt are, for Python 3.11 on two
                               kinds of machine, and writes both files; needs the network that pip uses
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PYTHON = "3.11"
"""As in deploy/Dockerfile."""
MACHINES = ("x86_64", "aarch64")
_GLIBC = ("2014", "_2_17", "_2_24", "_2_28")
_HEAD = """# {what}, by checksum: made by tools/image_pins.py from constraints.txt; do not edit.
# Files for Python {python} on {machines}. pip takes no other (--require-hashes), and builds none.
--only-binary :all:
"""


def wanted() -> list[str]:
    """The requirements of the service in the image: the project with Redis, and its client."""
    service = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    client = tomllib.loads((ROOT / "clients/python/pyproject.toml").read_text("utf-8"))["project"]
    asked = [
        *service["dependencies"],
        *service["optional-dependencies"]["redis"],
        *client["dependencies"],
    ]
    return [each for each in asked if not each.startswith("privacy-odometer")]


def builders() -> list[str]:
    """The build tools for the wheels of the project."""
    asked: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    return asked


def resolved(asked: list[str], machine: str) -> list[dict[str, Any]]:
    """The files that pip would install on a machine: its report of each."""
    platforms = [f"--platform=manylinux{glibc}_{machine}" for glibc in _GLIBC]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"),
                *("--disable-pip-version-check", f"--target={folder}", "--only-binary=:all:"),
                *(f"--python-version={PYTHON}", "--implementation=cp", *platforms),
                *(f"--report={report}", f"--constraint={ROOT / 'constraints.txt'}", *asked),
            ],
            check=True,
        )
        found: list[dict[str, Any]] = json.loads(report.read_text("utf-8"))["install"]
        return found


def pinned(what: str, asked: list[str]) -> str:
    """The text of a requirements file."""
    hashes: dict[str, set[str]] = {}
    for machine in MACHINES:
        for file in resolved(asked, machine):
            pin = f"{file['metadata']['name']}=={file['metadata']['version']}"
            hashes.setdefault(pin, set()).add(file["download_info"]["archive_info"]["hashes"]["sha256"])
    lines = [
        " \\\n".join([pin, *(f"    --hash=sha256:{each}" for each in sorted(hashes[pin]))])
        for pin in sorted(hashes, key=str.lower)
    ]
    head = _HEAD.format(what=what, python=PYTHON, machines=" and ".join(MACHINES))
    return head + "\n".join(lines) + "\n"


def main() -> None:
    """The command line."""
    for name, what, asked in (
        ("requirements.txt", "What the service needs in its image", wanted()),
        ("requirements-build.txt", "What makes the image's wheels", builders()),
    ):
        (ROOT / "deploy" / name).write_text(pinned(what, asked), "utf-8")
        print(f"wrote deploy/{name}")


if __name__ == "__main__":
    main()
