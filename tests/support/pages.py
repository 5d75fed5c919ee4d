"""Markdown pages as programs: their fenced blocks run in order, and the output they show is compared."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^(?:<!-- (not run)[^\n]*-->\n)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN_TIMEOUT_S = 120


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the output that a `text` block after it shows."""

    language: str
    text: str
    shown: str | None = None


_SECTION = re.compile(r"^## (?=.)", re.MULTILINE)
_OPENED = re.compile(r"\bdataset create ([\w-]+)|\.create_dataset\(\s*[\"']([\w-]+)[\"']")


@dataclass(frozen=True)
class Section:
    """The blocks below one heading of a page, and the places of the sections whose datasets they use."""

    title: str
    blocks: list[Block]
    needs: list[int]


def sections(page: Path) -> list[Section]:
    """The sections of a page in order. The text above the first heading is one, titled as the page."""
    parts = _SECTION.split(page.read_text("utf-8"))
    titles = [page.name, *(part.partition("\n")[0] for part in parts[1:])]
    code = ["".join(block.text for block in _blocks(part)) for part in parts]
    opened = [{one or other for one, other in _OPENED.findall(text)} for text in code]
    return [
        Section(
            titles[place],
            _blocks(part),
            [
                earlier
                for earlier in range(place)
                if any(re.search(rf"\b{name}\b", code[place]) for name in opened[earlier])
            ],
        )
        for place, part in enumerate(parts)
    ]


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that are to be run. One after `<!-- not run … -->` is left out."""
    return _blocks(page.read_text("utf-8"))


def _blocks(page_text: str) -> list[Block]:
    found: list[Block] = []
    for skipped, language, text in _FENCE.findall(page_text):
        if language == "text":
            found[-1] = Block(found[-1].language, found[-1].text, text)
        elif language in ("sh", "python") and not skipped:
            found.append(Block(language, text))
    return found


def run(block: Block, environment: dict[str, str], folder: Path) -> str:
    """The block's output, standard error included; what a shell block exports goes into `environment`."""
    exports = folder / "exports"
    if block.language == "python":
        command = [sys.executable, "-c", block.text]
    else:
        command = ["bash", "-euo", "pipefail", "-c", f"{block.text}\nenv -0 > '{exports}'"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{block.text}\nended with {done.returncode}:\n{done.stdout}"
    if exports.exists():
        environment.update(item.split("=", 1) for item in exports.read_text().split("\0") if "=" in item)
    return done.stdout


def shows(shown: str, output: str) -> bool:
    """Whether `shown` stands in `output` as whole lines; … is any text, alone on a line any lines."""
    lines = [
        re.escape(line).replace("…", ".*") if line != "…" else "(?:.*\n)*?.*" for line in shown.splitlines()
    ]
    return re.search("^" + "\n".join(lines) + "$", output, re.MULTILINE) is not None


def environment_of(url: str, key: str) -> dict[str, str]:
    """What a reader of the pages has: this environment's commands, and no colours."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ODOMETER_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{plain.get('PATH', '')}"
    return {
        **plain,
        "PATH": path,
        "NO_COLOR": "1",
        "COLUMNS": "110",
        "ODOMETER_URL": url,
        "ODOMETER_KEY": key,
    }
