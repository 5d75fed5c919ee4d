"""The picture and the table of packages in docs/architecture.md, made from the real imports."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from docs_tables import table

ROOT = Path(__file__).resolve().parent.parent
ACCOUNTANT = "odometer_accountant"
FOLDERS = {
    ACCOUNTANT: ROOT / "accountant" / ACCOUNTANT,
    "privacy_odometer": ROOT / "api" / "privacy_odometer",
    "odometer_client": ROOT / "clients" / "python" / "src" / "odometer_client",
}
CAPTIONS = {
    "privacy_odometer": "HTTP, command line, dashboard",
    "odometer_client": "Python client and hooks",
    "service": "one call per operation",
    "transfer": "export and import",
    "queries": "readings, advice, history",
    "writer": "the one thread that appends",
    "verify": "recounts a ledger",
    "ledger": "entries, state, decisions",
    "requests": "JSON that comes in",
    "budgets": "limits and their filters",
    "mechanisms": "noisy computations",
    "curves": "Rényi divergences",
    "numerics": "exact units, rounding up",
    "stores": "SQLite, Redis, memory",
}
"""The packages of the picture, from top to bottom, each with what is in it."""
FLOORS = (
    ("privacy_odometer", "odometer_client"),
    ("service", "transfer"),
    ("queries", "writer", "verify"),
    ("ledger",),
    ("requests", "stores"),
    ("budgets",),
    ("mechanisms",),
    ("curves",),
    ("numerics",),
)
_WIDTH, _BOX, _ROW = 800, (212, 50), 84
_TABLE = re.compile(r"(<!-- packages -->\n).*?(\n<!-- end of packages -->)", re.DOTALL)


def imports() -> dict[str, set[str]]:
    """The imports of each package. A module that lies directly in the accountant counts as one."""
    found: dict[str, set[str]] = {}
    for root, folder in FOLDERS.items():
        for file in sorted(folder.rglob("*.py")):
            source = _part(f"{root}.{'.'.join(file.relative_to(folder).with_suffix('').parts)}")
            for module in _imported(ast.parse(file.read_text("utf-8"))):
                target = _part(module)
                if target and source and target != source:
                    found.setdefault(source, set()).add(target)
                    found.setdefault(target, set())
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # `from odometer_accountant import errors` imports the module; a name of a package does not.
            yield from (
                [f"{node.module}.{a.name}" for a in node.names] if node.module in FOLDERS else [node.module]
            )


def _part(module: str) -> str | None:
    """The package that a module belongs to: of the accountant the one below it, else the distribution."""
    root, *rest = module.split(".")
    if root not in FOLDERS or (root == ACCOUNTANT and (not rest or rest[0] == "__init__")):
        return None
    return rest[0] if root == ACCOUNTANT else root


def architecture_page(page: Path) -> str:
    """The page with its table of packages as the imports are now."""
    known = imports()
    rows = [
        [f"`{name}`", _first_line(name), ", ".join(sorted(known[name] & set(CAPTIONS))) or "—"]
        for name in CAPTIONS
    ]
    base = sorted(set(known) - set(CAPTIONS))
    rows += [[f"`{name}`", _first_line(name), "—"] for name in base]
    text = table(["package or module", "what is in it", "imports these packages"], rows)
    return _TABLE.sub(lambda found: found[1] + text + found[2], page.read_text("utf-8"))


def _first_line(name: str) -> str:
    folder = FOLDERS.get(name, FOLDERS[ACCOUNTANT] / name)
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    return (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").split("\n\n")[0].replace("\n", " ")


def packages_picture() -> str:
    """The packages as boxes on their floors. Arrows that a longer way shows are left out."""
    known = {name: targets & set(CAPTIONS) for name, targets in imports().items() if name in CAPTIONS}
    places = {
        name: _place(row, column) for row, names in enumerate(FLOORS) for column, name in enumerate(names)
    }
    parts = [_arrow(places[source], places[target]) for source, target in _shortest(known)]
    parts += [_box(name, *places[name]) for name in CAPTIONS]
    height = len(FLOORS) * _ROW
    return _FRAME.format(width=_WIDTH, height=height, body="\n".join(parts))


def _place(row: int, column: int) -> tuple[float, float]:
    names, (width, _) = FLOORS[row], _BOX
    gap = (_WIDTH - len(names) * width) / (len(names) + 1)
    return gap + column * (width + gap), 10 + row * _ROW


def _shortest(known: dict[str, set[str]]) -> list[tuple[str, str]]:
    """The imports that no longer way between the same two packages stands for."""

    def reached(source: str) -> set[str]:
        return known[source].union(*(reached(target) for target in known[source]))

    return [
        (source, target)
        for source in CAPTIONS
        for target in CAPTIONS
        if target in known[source] and not any(target in reached(other) for other in known[source] - {target})
    ]


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    width, height = _BOX
    if start[1] == end[1]:
        return f'  <path class="line" d="M{start[0] + width:g} {start[1] + height / 2:g}H{end[0] - 2:g}"/>'
    from_x, to_x = start[0] + width / 2, end[0] + width / 2
    return f'  <path class="line" d="M{from_x:g} {start[1] + height:g}L{to_x:g} {end[1] - 2:g}"/>'


def _box(name: str, x: float, y: float) -> str:
    (width, height), middle = _BOX, x + _BOX[0] / 2
    kind = "box ours" if name not in FOLDERS else "box"
    return (
        f'  <rect class="{kind}" x="{x:g}" y="{y:g}" width="{width}" height="{height}" rx="8"/>\n'
        f'  <text class="name" x="{middle:g}" y="{y + 21:g}">{name}</text>\n'
        f'  <text class="small" x="{middle:g}" y="{y + 39:g}">{CAPTIONS[name]}</text>'
    )


_FRAME = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">
  <title>The packages and their imports</title>
  <style>
    text {{ font: 14px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; text-anchor: middle }}
    .name {{ font-weight: 600; font-size: 15px }}
    .small {{ font-size: 12.5px; fill: #57606a }}
    .box {{ fill: #f6f8fa; stroke: #8c959f; stroke-width: 1.5 }}
    .ours {{ fill: #ddf4ff; stroke: #0969da }}
    .line {{ fill: none; stroke: #57606a; stroke-width: 1.6; marker-end: url(#end) }}
    #end path {{ fill: #57606a }}
    @media (prefers-color-scheme: dark) {{
      text {{ fill: #e6edf3 }} .small {{ fill: #9198a1 }}
      .box {{ fill: #151b23; stroke: #656c76 }} .ours {{ fill: #121d2f; stroke: #4493f8 }}
      .line {{ stroke: #9198a1 }} #end path {{ fill: #9198a1 }}
    }}
  </style>
  <defs><marker id="end" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">
    <path d="M0 0 10 5 0 10z"/></marker></defs>
{body}
</svg>
"""
