"""Fail on places of one machine in tracked files, and on phrases that readers stumbled over.

python tools/check_words.py             exits 1 if there is a place, or a folder has more phrases than `LEFT`
python tools/check_words.py --phrases   lists every phrase: file, line, and the plain form
python tools/check_words.py --count     the number of phrases per folder
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Written in pieces, so that this file passes its own check.
PLACES = re.compile(
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

PHRASES: dict[str, str] = {
    r"\b[Tt]ellers?\b": "the writer (`LedgerWriter`)",
    r"\b[Aa]mnest(?:y|ies)\b": "accepted loss",
    r"\b[Ll]exicons?\b": "loss dictionary",
    r"\b[Dd]esks?\b": "reader (`StateReader`)",
    r"\b[Tt]haw(?:ed|s)?\b": "unfreeze, or text_to_floats",
    r"\bErrands?\b": "InFlight",
    r"(?<!there )\bis none\b(?! of)": "say what was expected: 'expected a number'",
    r"\bstands? twice\b": "duplicate",
    r"\bno longer sure\b": "cannot read",
    r"[Ww]hat (?:is|was) to be (?:said|asked|done)\b": "name the thing: 'warnings for …'",
    r"\b[Nn]oise is not its business\b": "it does not check how the noise is generated",
    r"\bwhat people were told\b": "the earlier promise",
    r"\b(?:service|server|ledger|store) made a mistake\b": "internal error",
    r"\bwent back in time\b": "history was rolled back",
    r"\bgoes back in time\b": "history is rolled back",
    r"\bforget the meaning of\b": "whose meaning you can delete",
    r"\b[Ww]ere faster each time\b": "too many concurrent writers",
    r"\bis (?:not |never )?found out\b": "cannot be detected",
    r"\bOf (?:a|an|each|one) [\w\- ]+:\s": "'For a …' after the statement, not before it",
    r"\bthat shall be\b": "that is to be, or plain present",
}
"""Phrases of our own that new readers had to guess at, with the plain form."""

ALLOWED = re.compile(r"odometer_teller_\w+|([\"'`])(?:amnesty|lexicon)\1|~config amnesty")
"""Stored keys and metrics' names: they never change."""

OPENINGS = re.compile(r"(?:What|Whose|Who|Whoever|Of|That|Which|Where)\b")
"""First words that make a docstring a riddle. It says what the thing is, or what it does."""

LEFT = {"accountant": 0, "api": 2, "clients": 54, "docs": 0, "tests": 0}
"""Phrases that are still there, by top folder: 0 for any other. A number may only become smaller."""

PROSE = (".md", ".html", ".js", ".lua", ".css", ".yml", ".toml", ".conf")
UNCHECKED = ("tests/golden/", "tools/check_words.py", "tests/house/test_check_words.py")
STATED_OPENINGS = ("accountant/", "api/", "clients/", "bench/", "tools/", "demo/")
"""Where docstrings are checked. A docstring of a test states a truth, and may begin with anything."""


def findings(path: Path, text: str) -> list[str]:
    """Each place of one machine that a text names, as `path:line: word`."""
    return [
        f"{path}:{number}: {match.group()}"
        for number, line in enumerate(text.splitlines(), start=1)
        for match in PLACES.finditer(line)
    ]


def phrases(path: Path, text: str) -> list[str]:
    """Each unclear phrase of a text, as `path:line: phrase → plain form`. In Python only prose is read."""
    name = path.as_posix()
    if name.startswith(UNCHECKED) or path.suffix not in (*PROSE, ".py"):
        return []
    lines = _python_prose(text) if path.suffix == ".py" else enumerate(text.splitlines(), start=1)
    found = [
        f"{path}:{number}: {match.group()} → {plain}"
        for number, line in lines
        for phrase, plain in PHRASES.items()
        for match in re.finditer(phrase, ALLOWED.sub("", line))
    ]
    return found + (
        _openings(path, text) if path.suffix == ".py" and name.startswith(STATED_OPENINGS) else []
    )


def _python_prose(text: str) -> Iterator[tuple[int, str]]:
    """(line number, text) of the comments and strings of a Python file."""
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds:
            yield from enumerate(token.string.splitlines(), start=token.start[0])


def _openings(path: Path, text: str) -> list[str]:
    """The docstrings of a Python file that begin with a word of `OPENINGS`."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = []
    for node in ast.walk(ast.parse(text)):
        first = (ast.get_docstring(node) or "").split("\n")[0] if isinstance(node, documented) else ""
        if OPENINGS.match(first) and not first.endswith("?"):
            line = getattr(node, "lineno", 1)
            found.append(f"{path}:{line}: {first} → say what it is, or what it does")
    return found


def too_many(unclear: list[str]) -> list[str]:
    """The phrases of each top folder that has more of them than `LEFT` says."""
    numbers = Counter(map(_top_folder, unclear))
    return [line for line in unclear if numbers[_top_folder(line)] > LEFT.get(_top_folder(line), 0)]


def _top_folder(finding: str) -> str:
    path = Path(finding.split(":", maxsplit=1)[0])
    return path.parts[0] if len(path.parts) > 1 else "."


def tracked() -> list[Path]:
    """Every file that git tracks, relative to the root."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(name) for name in listed.stdout.split("\0") if name]


def main(arguments: list[str]) -> int:
    """The command line; returns the exit status."""
    places: list[str] = []
    unclear: list[str] = []
    for path in tracked():
        try:
            text = (ROOT / path).read_text("utf-8")
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue  # a picture, or a file that was removed and is not committed yet
        places += findings(path, text)
        unclear += phrases(path, text)
    if "--count" in arguments:
        folders = Counter("/".join(Path(line.split(":")[0]).parts[:3][:-1]) or "." for line in unclear)
        print("\n".join(f"{number:5} {folder}" for folder, number in sorted(folders.items())))
        return 0
    if places:
        print("\n".join([*places, "These words belong to one machine, not to the project."]))
    more = too_many(unclear)
    if more or "--phrases" in arguments:
        print("\n".join([*(unclear if "--phrases" in arguments else more), "Unclear: use the plain form."]))
    else:
        print(f"words: ok ({len(unclear)} old unclear phrases are left: --phrases lists them)")
    return 1 if places or more else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
