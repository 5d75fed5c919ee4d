"""Datasets and budgets as lines, bars and tables that stay readable when narrow, piped or without colour."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from odometer_client.budget_kinds import SYMBOLS
from odometer_client.wording import down, moment, number, scope_words, up
from privacy_odometer.cli.output import indented, out, plural

BAR: Final = 20


def dataset_line(dataset: Mapping[str, Any]) -> Text:
    """Name and what was fixed when it was opened, or why it cannot be read."""
    if (problem := dataset.get("problem")) is not None:
        return Text.assemble((str(dataset["name"]), "bold"), "  ", (str(problem["detail"]), "bold red"))
    facts = [
        f"unit {dataset['unit']}",
        str(dataset["adjacency"]),
        plural(dataset["sequence"], "entry", "entries"),
    ]
    facts += _composes(dataset)
    facts += ["closed"] if dataset["closed"] else []
    facts += ["FROZEN"] if dataset.get("frozen") else []
    facts += ["no limit"] if dataset["odometer_only"] else []
    return Text.assemble((str(dataset["name"]), "bold"), "  ", ", ".join(facts))


def _composes(dataset: Mapping[str, Any]) -> list[str]:
    """How charges compose, where it is not one after the other; and what is held."""
    facts = {
        "by_partition": f"partitions {', '.join(dataset.get('partitions') or ())}",
        "by_unit": "an odometer for each unit",
    }
    composition = facts.get(str(dataset.get("composition")))
    holds = dataset.get("open_holds")
    open_holds = plural(holds, "open hold", "open holds") if holds else None
    return [fact for fact in (composition, open_holds) if fact is not None]


def budget_blocks(budgets: Sequence[Mapping[str, Any]]) -> None:
    """Print the budgets with what is spent and left of each, and a bar."""
    if not budgets:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("  budget", "kind", "limit"):
        table.add_column(title, no_wrap=True)
    for title in ("spent", "left"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("used", no_wrap=True)
    for budget in budgets:
        table.add_row(
            f"  {budget_name(budget)}",
            budget["kind"],
            _limit(budget),
            *_state(budget),
        )
    _print_fitting(table, budgets)
    for budget in budgets:
        if budget.get("renews"):
            indented(f"{_plain_name(budget)} starts anew at {moment(budget['renews'])}", style="dim")
        if budget.get("held"):
            indented(f"{_plain_name(budget)}: {up(budget['held'])} of what is spent is held", style="dim")


def _print_fitting(table: Table, budgets: Sequence[Mapping[str, Any]]) -> None:
    # Numbers are never cut: what is too wide for a table gets lines of its own.
    if Measurement.get(out, out.options.update(max_width=1000), table).maximum <= out.width:
        out.print(table)
        return
    for budget in budgets:
        _block(budget)


def order_note(dataset: str, budgets: Sequence[Mapping[str, Any]]) -> None:
    """Say where the ε that an approximate budget promises is, when a receipt counts it at one order."""
    if any(budget["kind"] == "approximate" and budget.get("order") is not None for budget in budgets):
        indented(f"Counted at one Rényi order. In ε and δ: odometer status {dataset}", style="dim")


def _block(budget: Mapping[str, Any]) -> None:
    indented(f"{budget_name(budget)} ({budget['kind']}, limit {_limit(budget)})")
    if _of_each(budget):
        indented("each has its own count", 4)
        return
    indented(f"spent {up(budget['spent'])}, left {down(budget['left'])}", 4)
    out.print("    ", bar(budget["used"], max(4, min(BAR, out.width - 15))), sep="")


def _state(budget: Mapping[str, Any]) -> tuple[str, str, Text]:
    """Spent, left and used, as far as there is one such number."""
    if _of_each(budget):
        return "", "", Text("each its own", "dim")
    return up(budget["spent"]), down(budget["left"]), bar(budget["used"])


def _of_each(budget: Mapping[str, Any]) -> bool:
    """Whether each of many scopes has a count of its own, so that there is none as a whole."""
    return budget["used"] is None


def budget_name(budget: Mapping[str, Any]) -> str:
    """A budget's name; with whose it is, and what it covers when that is not everything."""
    covers = budget.get("covers", "all entries")
    scope = scope_words(budget.get("scope") or "dataset")
    said = ", ".join(words for words in (scope, "" if covers == "all entries" else covers) if words)
    return f"{_plain_name(budget)} ({said})" if said else _plain_name(budget)


def _plain_name(budget: Mapping[str, Any]) -> str:
    """A budget state's `name`, a receipt's `budget`."""
    return str(budget.get("name") or budget.get("budget"))


def _limit(budget: Mapping[str, Any]) -> str:
    parts = [f"{SYMBOLS.get(budget['kind'], '')} {down(budget['limit'])}".strip()]
    if budget.get("order") is not None:
        parts.append(f"at order {number(budget['order'])}")
    if budget.get("delta") is not None:
        parts.append(f"δ {budget['delta']:g}")
    if budget.get("reserved"):
        parts.append(
            "reserved " + ", ".join(f"{team} {share:g}" for team, share in budget["reserved"].items())
        )
    window = f" each {budget['window']}" if budget.get("window") else ""
    return ", ".join(parts) + window


def bar(used: float, width: int = BAR) -> Text:
    """The share used, as a bar and a percentage rounded up. Full only when it is."""
    full, empty = ("█", "░") if _draws(out.encoding) else ("#", ".")
    filled = width if used >= 1 else min(width - 1, math.ceil(round(used * width, 6)))
    filled = max(filled, 1 if used > 0 else 0)
    colour = "green" if used < 0.75 else "yellow" if used < 1 else "red"
    percent = min(1000, math.ceil(round(used * 1000, 6)))
    return Text.assemble(
        (full * filled, colour), (empty * (width - filled), "dim"), f" {percent / 10:.1f} %".rjust(9)
    )


def _draws(encoding: str) -> bool:
    try:
        "█░".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
