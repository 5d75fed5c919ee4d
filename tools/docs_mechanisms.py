"""docs/mechanisms.md, from the registry of mechanisms."""

import json
from types import ModuleType

from docs_tables import GENERATED, bounds, one_line, table

from odometer_accountant.mechanisms import FAMILIES
from odometer_accountant.mechanisms.base import EVERY_ADJACENCY, Mechanism
from odometer_accountant.mechanisms.sessions import Session

_HEAD = f"""# Mechanisms
{GENERATED}

What can be charged. A mechanism document describes ONE release; how often it runs is the charge's `count`.
Every parameter is relative to the dataset's adjacency, and a mechanism whose analysis does not hold under
that adjacency is refused. Formulas: D_α is the Rényi divergence of order α (D_∞: pure ε), ρ is zCDP's, μ is
Gaussian DP's; natural logarithms. A coordinate that a formula does not name has no bound.

`odometer_client.mechanisms` has the same as Python classes, `GET /v1/mechanisms` as JSON with schemas.
"""

_SESSIONS = """# Kinds of session

What can be opened at `POST /v1/datasets/{dataset}/sessions`: an interactive mechanism, which is charged for
with the mechanisms above as its public answers come.
"""


def mechanisms_page() -> str:
    """The text of the page."""
    kinds = sorted(Mechanism.registry)
    overview = "\n\n".join(_family(family) for family in FAMILIES)
    sections = "\n\n".join(_section(kind, Mechanism.registry[kind]) for kind in kinds)
    sessions = "\n\n".join(_session(kind, Session.registry[kind]) for kind in sorted(Session.registry))
    return f"{_HEAD}\n{overview}\n\n{sections}\n\n{_SESSIONS}\n{sessions}\n"


def _family(module: ModuleType) -> str:
    """The kinds of one family, under what their module says of itself."""
    kinds = [
        kind for kind in sorted(Mechanism.registry) if Mechanism.registry[kind].__module__ == module.__name__
    ]
    rows = [(f"[`{kind}`](#{kind})", Mechanism.registry[kind].purpose) for kind in kinds]
    return f"{one_line(module.__doc__ or '')}\n\n{table(['kind', 'what for'], rows)}"


def _section(name: str, kind: type[Mechanism]) -> str:
    lines = [_title(name, kind), _parameters(kind)]
    lines.append(f"- Loss of one release: {kind.formula}\n- Source: {kind.source}\n- {_adjacency(kind)}")
    if kind.avoid:
        lines[-1] += f"\n- Not for: {kind.avoid}"
    return "\n\n".join([*lines, _examples(kind)])


def _session(name: str, kind: type[Session]) -> str:
    return "\n\n".join([_title(name, kind), _parameters(kind), f"- Source: {kind.source}", _examples(kind)])


def _title(name: str, kind: type[Mechanism] | type[Session]) -> str:
    return f"## {name}\n\n**{kind.title}.** {one_line(kind.__doc__ or '')} {kind.purpose}"


def _examples(kind: type[Mechanism] | type[Session]) -> str:
    examples = "\n".join(json.dumps(example, ensure_ascii=False) for example in kind.examples)
    return f"```json\n{examples}\n```"


def _parameters(kind: type[Mechanism] | type[Session]) -> str:
    schema = kind.model_json_schema()
    required = set(schema.get("required", ()))
    return table(
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


def _adjacency(kind: type[Mechanism]) -> str:
    if kind.adjacencies == EVERY_ADJACENCY:
        return "Adjacency: any"
    valid = " or ".join(f"`{adjacency.value}`" for adjacency in sorted(kind.adjacencies))
    return f"Adjacency: {valid} only; {kind.elsewhere}"
