"""`odometer charge`, `check`, `convert`: what a release costs, before it goes out."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from odometer_client import wording
from odometer_client.connection import DEFAULT_URL
from odometer_client.wording import moment, number, up
from privacy_odometer.cli import errors, parsing
from privacy_odometer.cli.options import (
    Adjacency,
    Again,
    AllPartitions,
    Count,
    Dataset,
    GroupName,
    Json,
    Kind,
    Parameters,
    Partition,
    Principal,
    Runs,
    Unit,
    about,
    asked,
    reads_several,
)
from privacy_odometer.cli.output import Format, Key, Output, Url, connected, end, indented, out, print_json
from privacy_odometer.cli.tables import budget_blocks, order_note

if TYPE_CHECKING:
    from odometer_client import Client
    from odometer_client.documents import Check


def charge(
    dataset: Dataset,
    mechanism: Kind = None,
    parameters: Parameters = None,
    count: Count = None,
    json_: Json = None,
    adjacency: Adjacency = None,
    partition: Partition = None,
    all_partitions: AllPartitions = False,
    unit: Unit = None,
    group: GroupName = None,
    runs: Runs = None,
    principal: Principal = None,
    idempotency_key: Again = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Record a charge before its release.

    Release only when the exit status is 0; whatever else it is: release nothing.

    odometer charge adult gaussian noise_multiplier=10 --count 5

    odometer charge adult poisson_subsampled base.kind=gaussian base.noise_multiplier=1.1 sampling_rate=0.01

    Units are charged by the shard that keeps them, each shard all or nothing: a receipt for each.
    """
    from odometer_client.keys import new_key

    what, times = asked(mechanism, parameters, count, json_)
    options = about(adjacency, partition, all_partitions, group, runs, principal)
    if unit and "group" in options:
        raise typer.BadParameter("a dataset that composes by_unit has no groups: leave --group out")
    once = idempotency_key or new_key()
    with certain(once), connected(url, key) as client:
        if unit:
            receipts = client.charge_units(dataset, what, times, unit, key=once, **options)
        else:
            receipts = [client.charge(dataset, what, times, key=once, **options)]
        if format_ is Format.json:
            print_json(receipts if unit else receipts[0])
            return
        shown = [in_epsilon(client, receipt) for receipt in receipts]
    for receipt in shown:
        show_receipt(receipt, "charged", several=reads_several(partition, all_partitions))


def in_epsilon(client: "Client", receipt: Mapping[str, Any]) -> dict[str, Any]:
    """A receipt whose budgets are all in their own parameter, as `check` and `status` show them.

    A receipt counts an approximate budget at one Rényi order, which costs a charge nothing. What is left in ε
    is asked for here, where a person waits; when there is no answer, the receipt stays as it is.
    """
    asked: dict[str, list[Mapping[str, Any]]] = {}
    for budget in receipt["left"]:
        if _at_an_order(budget) and budget["scope"] not in asked:
            asked[budget["scope"]] = _budgets_of(client, receipt["dataset"], budget["scope"])
    return {**receipt, "left": [_own(budget, asked.get(budget["scope"], [])) for budget in receipt["left"]]}


def _at_an_order(budget: Mapping[str, Any]) -> bool:
    return budget["kind"] == "approximate" and budget.get("order") is not None


def _budgets_of(client: "Client", dataset: str, scope: str) -> list[Mapping[str, Any]]:
    """The budgets of one scope as the status has them; none where there is no answer."""
    from odometer_client import OdometerError

    try:
        found = client.odometer(dataset, scope=None if scope == "dataset" else scope)
    except OdometerError:
        return []
    return list(found["budgets"] if scope == "dataset" else found["left"])


def _own(budget: Mapping[str, Any], states: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """A receipt's budget with the figures of the state that has its name."""
    for state in states if _at_an_order(budget) else ():
        if budget["budget"] in (state.get("budget"), state.get("name")):
            figures = {name: state[name] for name in ("limit", "spent", "left", "used")}
            return {**budget, **figures, "order": None}
    return budget


@contextmanager
def certain(key: str) -> Iterator[None]:
    """Where nobody knows whether a charge was recorded: say so, and how to ask again."""
    again = f"To ask again for the very same: --idempotency-key {key}"
    try:
        yield
    except KeyboardInterrupt:
        end(
            f"interrupted: it is not known whether this was recorded. Release nothing. {again}",
            errors.UNSURE,
        )
    except typer.Exit as ended:
        if ended.exit_code == errors.UNSURE:
            typer.echo(f"Release nothing. {again}", err=True)
        raise


def show_receipt(receipt: Mapping[str, Any], done: str, *, several: bool = False) -> None:
    """A receipt in lines; `done` says of what, `several` that it reads more than one partition."""
    dataset = str(receipt["dataset"])
    if receipt["replayed"]:
        out.print(f"This was {done} before, under the same key. It is the same, not a new one:")
    shard = f" of shard {receipt['shard']}" if "shard" in receipt else ""
    out.print(f"{done:<8} {dataset}, entry {receipt['sequence']}{shard}")
    if "hold" in receipt:
        out.print(f"hold     {receipt['hold']['id']}, expires {moment(receipt['hold']['expires'])}")
    if "by" in receipt:
        out.print(f"for      {receipt['principal']}, asked by {receipt['by']}", soft_wrap=True)
    out.print(f"hash     {receipt['hash']}", soft_wrap=True)
    out.print(f"loss     {loss_line(receipt['loss'])}")
    show_notes(receipt)
    budget_blocks(receipt["left"])
    if several:
        _tightest_note(dataset, receipt["left"])
    order_note(dataset, receipt["left"])


def _tightest_note(dataset: str, left: Sequence[Mapping[str, Any]]) -> None:
    """Say whose budget is shown where each partition has one, and how to see the others'."""
    if any(str(budget.get("scope", "")).startswith("partition/") for budget in left):
        indented(
            "Of the partitions that this reads, the one with least left is shown. "
            f"Each of them: odometer status {dataset} --scope partition/NAME",
            style="dim",
        )


def show_notes(answer: Mapping[str, Any]) -> None:
    """What is to be said of how a charge is counted."""
    for line in wording.notes(answer):
        out.print(line, soft_wrap=True)


def check(
    dataset: Dataset,
    mechanism: Kind = None,
    parameters: Parameters = None,
    count: Count = None,
    json_: Json = None,
    adjacency: Adjacency = None,
    partition: Partition = None,
    all_partitions: AllPartitions = False,
    unit: Unit = None,
    group: GroupName = None,
    runs: Runs = None,
    principal: Principal = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Ask whether a charge would fit, and charge nothing.

    Exit status 0: it would fit; 1: it would not.
    """
    what, times = asked(mechanism, parameters, count, json_)
    options = about(adjacency, partition, all_partitions, group, runs, principal)
    with connected(url, key) as client:
        answer = client.check(dataset, what, times, units=unit, **options)
    show_answer(dataset, answer, format_, several=reads_several(partition, all_partitions))


def show_answer(dataset: str, answer: "Check", format_: Format, *, several: bool = False) -> NoReturn:
    """Say whether it would fit, and end with the exit status that says so."""
    if format_ is Format.json:
        print_json(answer)
    elif answer.fits:
        out.print("It would fit, and leave:")
        budget_blocks(answer.left)
        if several:
            _tightest_note(dataset, answer.left)
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


def convert(
    mechanism: Kind = None,
    parameters: Parameters = None,
    count: Count = None,
    json_: Json = None,
    delta: Annotated[
        float | None, typer.Option(parser=parsing.number, metavar="NUMBER", help="Read ε at this δ.")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(parser=parsing.number, metavar="NUMBER", help="Or read δ at this ε.")
    ] = None,
    adjacency: Adjacency = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Say what a plan would cost, on no dataset at all.

    Without a service: --url memory://

    odometer convert gaussian noise_multiplier=10 --count 5 --delta 1e-6
    """
    if (delta is None) == (epsilon is None):
        raise typer.BadParameter("give either --delta or --epsilon")
    what, times = asked(mechanism, parameters, count, json_)
    with connected(url, key) as client:
        answer = client.convert(what, times, delta=delta, epsilon=epsilon, adjacency=adjacency)
    if format_ is Format.json:
        print_json(answer)
        return
    for reading in answer["readings"]:
        at = f" at δ {reading['delta']:g}" if reading["delta"] is not None else ""
        order = f", order {number(reading['order'])}" if reading["order"] is not None else ""
        out.print(f"{reading['name']:<11} {reading['quantity']} {up(reading['value'])}{at}{order}")
        for note in [reading["holds"], *reading["warnings"]]:
            indented(note, 12, "dim")
    show_notes(answer)


def loss_line(loss: Mapping[str, float | None]) -> str:
    """A loss in the notions that it has a number in."""
    shown = (("pure", "pure ε"), ("rho", "ρ"), ("mu", "μ"), ("delta", "δ"))
    return ", ".join(f"{letter} {up(loss.get(name))}" for name, letter in shown)
