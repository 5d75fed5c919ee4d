"""Fail when a tracked file names a place that only one workplace has, or a host that packages come from.

python tools/check_words.py     exits 1 and lists file, line and word
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Written in pieces, so that this file passes its own check.
FORBIDDEN = re.compile(
    "|".join(
        [
            r"(?<![\w.])/" + r"(?:work|home|Users)/\w+",
            r"(?<![\w.])/" + r"(?:root|opt)/\.?\w+",
            r"\.\./" + r"shared\b",
            r"py" + r"pi\.(?:org|python)",
            "python" + r"hosted\.org",
            "npm" + r"js\.(?:com|org)",
            r"(?:unpkg|jsdelivr|cdnjs|cloudflare)" + r"\.(?:com|net)",
            r"deb\." + r"debian\.org",
            r"download\." + r"pytorch\.org",
        ]
    )
)


def findings(path: Path, text: str) -> list[str]:
    """Each forbidden word of a text, as `path:line: word`."""
    return [
        f"{path}:{number}: {match.group()}"
        for number, line in enumerate(text.splitlines(), start=1)
        for match in FORBIDDEN.finditer(line)
    ]


def tracked() -> list[Path]:
    """Every file that git tracks, relative to the root."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(name) for name in listed.stdout.split("\0") if name]


def main() -> int:
    """The command line; returns the exit status."""
    found: list[str] = []
    for path in tracked():
        try:
            found += findings(path, (ROOT / path).read_text("utf-8"))
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue  # a picture, or a file that was removed and is not committed yet
    print(
        "\n".join([*found, "These words belong to one machine, not to the project."])
        if found
        else "words: ok"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
