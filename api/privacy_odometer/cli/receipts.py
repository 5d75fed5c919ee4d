"""Receipts, answers to checks, and unknown outcomes, as the commands that charge print them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from odometer_client import wording
from odometer_client.wording import moment, up
from privacy_odometer.cli import errors
from privacy_odometer.cli.budget_tables import budget_blocks, order_note
from privacy_odometer.cli.errors import end
from privacy_odometer.cli.options import Format
from privacy_odometer.cli.output import console, print_indented, print_json

if TYPE_CHECKING:
    from odometer_client import Client
    from odometer_client.documents import Check


@contextmanager
def unknown_outcome_explained(key: str) -> Iterator[None]:
    """If it is unknown whether a charge was recorded, say so, and how to send the same request again."""
    again = f"To send the same request again: --idempotency-key {key}"
    try:
        yield
    except KeyboardInterrupt:
        end(
            f"interrupted: it is unknown whether this was recorded. Release nothing. {again}",
            errors.UNSURE,
        )
    except typer.Exit as ended:
        if ended.exit_code == errors.UNSURE:
            typer.echo(f"Release nothing. {again}", err=True)
        raise


def in_epsilon(client: "Client", receipt: Mapping[str, Any]) -> dict[str, Any]:
    """The receipt with its approximate budgets in ε and δ, as `check` and `status` show them.

    A receipt counts an approximate budget at one Rényi order, because ε would cost each charge time. Here a
    person waits, so the status is read as well. If that fails, the receipt stays as it is.
    """
    states: dict[str, list[Mapping[str, Any]]] = {}
    for budget in receipt["left"]:
        if _at_an_order(budget) and budget["scope"] not in states:
            states[budget["scope"]] = _states_of(client, receipt["dataset"], budget["scope"])
    left = [_with_state(budget, states.get(budget["scope"], [])) for budget in receipt["left"]]
    return {**receipt, "left": left}


def _at_an_order(budget: Mapping[str, Any]) -> bool:
    return budget["kind"] == "approximate" and budget.get("order") is not None


def _states_of(client: "Client", dataset: str, scope: str) -> list[Mapping[str, Any]]:
    """The budgets of one scope, read from the status; none if it cannot be read."""
    from odometer_client import OdometerError

    try:
        odometer = client.odometer(dataset, scope=None if scope == "dataset" else scope)
    except OdometerError:
        return []
    return list(odometer["budgets"] if scope == "dataset" else odometer["left"])


def _with_state(budget: Mapping[str, Any], states: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """A receipt's budget with the figures of the state of the same name."""
    for state in states if _at_an_order(budget) else ():
        if budget["budget"] in (state.get("budget"), state.get("name")):
            figures = {name: state[name] for name in ("limit", "spent", "left", "used")}
            return {**budget, **figures, "order": None}
    return budget


def show_receipt(receipt: Mapping[str, Any], done: str, *, several: bool = False) -> None:
    """Print a receipt.

    `done`: "charged" or "held". `several`: the charge reads more than one partition.
    """
    out = console()
    dataset = str(receipt["dataset"])
    if receipt["replayed"]:
        out.print(f"This was {done} before, under the same key. The receipt is the first one, not a new one:")
    shard = f" of shard {receipt['shard']}" if "shard" in receipt else ""
    out.print(f"{done:<8} {dataset}, entry {receipt['sequence']}{shard}")
    if "hold" in receipt:
        out.print(f"hold     {receipt['hold']['id']}, expires {moment(receipt['hold']['expires'])}")
    if "by" in receipt:
        out.print(f"for      {receipt['principal']}, requested by {receipt['by']}", soft_wrap=True)
    out.print(f"hash     {receipt['hash']}", soft_wrap=True)
    out.print(f"loss     {loss_line(receipt['loss'])}")
    show_notes(receipt)
    budget_blocks(receipt["left"])
    if several:
        _partitions_note(dataset, receipt["left"])
    order_note(dataset, receipt["left"])


def _partitions_note(dataset: str, left: Sequence[Mapping[str, Any]]) -> None:
    """Explain which partition's budget is shown, and how to see the others."""
    if any(str(budget.get("scope", "")).startswith("partition/") for budget in left):
        print_indented(
            "Only the partition with the least left is shown. "
            f"For each partition: odometer status {dataset} --scope partition/NAME",
            style="dim",
        )


def show_notes(answer: Mapping[str, Any]) -> None:
    """Print the notes on how a charge is counted."""
    for line in wording.notes(answer):
        console().print(line, soft_wrap=True)


def show_answer(dataset: str, answer: "Check", format_: Format, *, several: bool = False) -> NoReturn:
    """Print whether a charge would fit, and end with status 0 if it would and 1 if not."""
    out = console()
    if format_ is Format.json:
        print_json(answer)
    elif answer.fits:
        out.print("It would fit, and leave:")
        budget_blocks(answer.left)
        if several:
            _partitions_note(dataset, answer.left)
        order_note(dataset, answer.left)
    elif not answer.refusals:
        out.print("It would be refused: the dataset is closed.")
    else:
        out.print("It would be refused.")
        for line in [*wording.refusals(answer.refusals), wording.would_fit(answer.would_fit)]:
            out.print(line)
    if format_ is not Format.json:
        show_notes(answer)
    raise typer.Exit(0 if answer.fits else errors.REFUSED)


def loss_line(loss: Mapping[str, float | None]) -> str:
    """A loss in each notion of privacy."""
    notions = (("pure", "pure ε"), ("rho", "ρ"), ("mu", "μ"), ("delta", "δ"))
    return ", ".join(f"{symbol} {up(loss.get(name))}" for name, symbol in notions)
