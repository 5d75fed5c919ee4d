"""Datasets and budgets as lines, bars and tables, for any width, with or without colour."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from odometer_client.budget_kinds import SYMBOLS
from odometer_client.wording import down, moment, number, scope_words, up
from privacy_odometer.cli.output import console, plural, print_indented
from privacy_odometer.cli.tables import fits

BAR: Final = 20
"""The width of a bar, in characters."""


def dataset_line(dataset: Mapping[str, Any]) -> Text:
    """The dataset's name with its fixed properties, or with the reason why it cannot be read."""
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
    """How charges compose, if not sequentially, and how many holds are open."""
    facts = {
        "by_partition": f"partitions {', '.join(dataset.get('partitions') or ())}",
        "by_unit": "an odometer for each unit",
    }
    composition = facts.get(str(dataset.get("composition")))
    holds = dataset.get("open_holds")
    open_holds = plural(holds, "open hold", "open holds") if holds else None
    return [fact for fact in (composition, open_holds) if fact is not None]


def budget_blocks(budgets: Sequence[Mapping[str, Any]]) -> None:
    """Print the budgets: the limit, the amounts spent and left, and a bar."""
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
            print_indented(f"{_plain_name(budget)} starts anew at {moment(budget['renews'])}", style="dim")
        if budget.get("held"):
            print_indented(
                f"{_plain_name(budget)}: {up(budget['held'])} of the spent amount is held", style="dim"
            )


def _print_fitting(table: Table, budgets: Sequence[Mapping[str, Any]]) -> None:
    """Print the table, or lines for each budget if the terminal is too narrow: numbers are never cut."""
    if fits(table):
        console().print(table)
        return
    for budget in budgets:
        _block(budget)


def order_note(dataset: str, budgets: Sequence[Mapping[str, Any]]) -> None:
    """Name the command that shows ε and δ, if a receipt counts an approximate budget at one Rényi order."""
    if any(budget["kind"] == "approximate" and budget.get("order") is not None for budget in budgets):
        print_indented(f"Counted at one Rényi order. For ε and δ: odometer status {dataset}", style="dim")


def _block(budget: Mapping[str, Any]) -> None:
    print_indented(f"{budget_name(budget)} ({budget['kind']}, limit {_limit(budget)})")
    if _of_each(budget):
        print_indented("each scope has its own count", 4)
        return
    print_indented(f"spent {up(budget['spent'])}, left {down(budget['left'])}", 4)
    out = console()
    out.print("    ", bar(budget["used"], max(4, min(BAR, out.width - 15))), sep="")


def _state(budget: Mapping[str, Any]) -> tuple[str, str, Text]:
    """The cells spent, left and used; empty if each scope has its own count."""
    if _of_each(budget):
        return "", "", Text("each its own", "dim")
    return up(budget["spent"]), down(budget["left"]), bar(budget["used"])


def _of_each(budget: Mapping[str, Any]) -> bool:
    """Whether the budget holds for each of many scopes, which have no count together."""
    return budget["used"] is None


def budget_name(budget: Mapping[str, Any]) -> str:
    """The budget's name, with its scope and the entries it covers unless it covers all of the dataset."""
    covers = budget.get("covers", "all entries")
    scope = scope_words(budget.get("scope") or "dataset")
    about = ", ".join(words for words in (scope, "" if covers == "all entries" else covers) if words)
    return f"{_plain_name(budget)} ({about})" if about else _plain_name(budget)


def _plain_name(budget: Mapping[str, Any]) -> str:
    """The budget's name: `name` in a state, `budget` in a receipt."""
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
    """The used share as a bar and a percentage, both rounded up. The bar is full only at 100 %."""
    full, empty = ("█", "░") if _can_draw(console().encoding) else ("#", ".")
    filled = width if used >= 1 else min(width - 1, math.ceil(round(used * width, 6)))
    filled = max(filled, 1 if used > 0 else 0)
    colour = "green" if used < 0.75 else "yellow" if used < 1 else "red"
    percent = min(1000, math.ceil(round(used * 1000, 6)))
    return Text.assemble(
        (full * filled, colour), (empty * (width - filled), "dim"), f" {percent / 10:.1f} %".rjust(9)
    )


def _can_draw(encoding: str) -> bool:
    """Whether the encoding has the letters of the bar."""
    try:
        "█░".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
