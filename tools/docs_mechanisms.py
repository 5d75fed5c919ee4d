"""docs/mechanisms.md, from the registry of mechanisms."""

import json
from types import ModuleType

from docs_tables import GENERATED, bounds, one_line, table

from accountant.mechanisms import FAMILIES
from accountant.mechanisms.base import EVERY_ADJACENCY, Mechanism

_HEAD = f"""# Mechanisms
{GENERATED}

What can be charged. A mechanism document describes ONE release; how often it runs is the charge's `count`.
Every parameter is relative to the dataset's adjacency, and a mechanism whose analysis does not hold under
that adjacency is refused. Formulas: D_α is the Rényi divergence of order α (D_∞: pure ε), ρ is zCDP's, μ is
Gaussian DP's; natural logarithms. A coordinate that a formula does not name has no bound.

`odometer_client.mechanisms` has the same as Python classes, `GET /v1/mechanisms` as JSON with schemas.
"""


def mechanisms_page() -> str:
    """The text of the page."""
    kinds = sorted(Mechanism.registry)
    overview = "\n\n".join(_family(family) for family in FAMILIES)
    sections = "\n\n".join(_section(kind, Mechanism.registry[kind]) for kind in kinds)
    return f"{_HEAD}\n{overview}\n\n{sections}\n"


def _family(module: ModuleType) -> str:
    """The kinds of one family, under what their module says of itself."""
    kinds = [
        kind for kind in sorted(Mechanism.registry) if Mechanism.registry[kind].__module__ == module.__name__
    ]
    rows = [(f"[`{kind}`](#{kind})", Mechanism.registry[kind].purpose) for kind in kinds]
    return f"{one_line(module.__doc__ or '')}\n\n{table(['kind', 'what for'], rows)}"


def _section(name: str, kind: type[Mechanism]) -> str:
    schema = kind.model_json_schema()
    required = set(schema.get("required", ()))
    parameters = table(
        ["parameter", "takes", "meaning"],
        [
            (
                f"`{field}`" + ("" if field in required else " (optional)"),
                bounds(item),
                one_line(kind.model_fields[field].description or ""),
            )
            for field, item in schema["properties"].items()
            if field != "kind"
        ],
    )
    lines = [f"## {name}", f"**{kind.title}.** {one_line(kind.__doc__ or '')} {kind.purpose}", parameters]
    lines.append(f"- Loss of one release: {kind.formula}\n- Source: {kind.source}\n- {_adjacency(kind)}")
    if kind.avoid:
        lines[-1] += f"\n- Not for: {kind.avoid}"
    examples = "\n".join(json.dumps(example, ensure_ascii=False) for example in kind.examples)
    lines.append(f"```json\n{examples}\n```")
    return "\n\n".join(lines)


def _adjacency(kind: type[Mechanism]) -> str:
    if kind.adjacencies == EVERY_ADJACENCY:
        return "Adjacency: any"
    valid = " or ".join(f"`{adjacency.value}`" for adjacency in sorted(kind.adjacencies))
    return f"Adjacency: {valid} only; {kind.elsewhere}"
