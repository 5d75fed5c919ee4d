"""`odometer charge`, `check`, `convert`: the cost of a release, before it goes out."""

from typing import Annotated

import typer

from odometer_client.connection import DEFAULT_URL
from odometer_client.wording import number, up
from privacy_odometer.cli import parsing
from privacy_odometer.cli.connection import connected
from privacy_odometer.cli.options import (
    Adjacency,
    AllPartitions,
    Count,
    Dataset,
    Format,
    GroupName,
    IdempotencyKey,
    Json,
    Key,
    Kind,
    Output,
    Parameters,
    Partition,
    Principal,
    Runs,
    Unit,
    Url,
    charge_options,
    reads_several,
    requested,
)
from privacy_odometer.cli.output import console, print_indented, print_json
from privacy_odometer.cli.receipts import (
    in_epsilon,
    show_answer,
    show_notes,
    show_receipt,
    unknown_outcome_explained,
)


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
    idempotency_key: IdempotencyKey = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Charge a release before it goes out.

    Release only if the exit status is 0. Release nothing after any other exit status.

    odometer charge adult gaussian noise_multiplier=10 --count 5

    odometer charge adult poisson_subsampled base.kind=gaussian base.noise_multiplier=1.1 sampling_rate=0.01

    Units are charged shard by shard, with a receipt for each shard: all units of a shard are charged or none.
    """
    from odometer_client.keys import new_key

    mechanisms, times = requested(mechanism, parameters, count, json_)
    options = charge_options(adjacency, partition, all_partitions, group, runs, principal)
    if unit and "group" in options:
        raise typer.BadParameter("a dataset that composes by_unit has no groups: leave --group out")
    once = idempotency_key or new_key()
    with unknown_outcome_explained(once), connected(url, key) as client:
        if unit:
            receipts = client.charge_units(dataset, mechanisms, times, unit, key=once, **options)
        else:
            receipts = [client.charge(dataset, mechanisms, times, key=once, **options)]
        if format_ is Format.json:
            print_json(receipts if unit else receipts[0])
            return
        shown = [in_epsilon(client, receipt) for receipt in receipts]
    for receipt in shown:
        show_receipt(receipt, "charged", several=reads_several(partition, all_partitions))


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
    """Check whether a charge would fit, without charging anything.

    Exit status 0: it would fit; 1: it would not.
    """
    mechanisms, times = requested(mechanism, parameters, count, json_)
    options = charge_options(adjacency, partition, all_partitions, group, runs, principal)
    with connected(url, key) as client:
        answer = client.check(dataset, mechanisms, times, units=unit, **options)
    show_answer(dataset, answer, format_, several=reads_several(partition, all_partitions))


def convert(
    mechanism: Kind = None,
    parameters: Parameters = None,
    count: Count = None,
    json_: Json = None,
    delta: Annotated[
        float | None,
        typer.Option(parser=parsing.number, metavar="NUMBER", help="Show ε at this δ."),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(parser=parsing.number, metavar="NUMBER", help="Show δ at this ε."),
    ] = None,
    adjacency: Adjacency = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Show what a plan would cost. No dataset is involved, and nothing is charged.

    Give either --delta or --epsilon. With --url memory:// no service is needed.

    odometer convert gaussian noise_multiplier=10 --count 5 --delta 1e-6
    """
    if (delta is None) == (epsilon is None):
        raise typer.BadParameter("give either --delta or --epsilon")
    mechanisms, times = requested(mechanism, parameters, count, json_)
    with connected(url, key) as client:
        answer = client.convert(mechanisms, times, delta=delta, epsilon=epsilon, adjacency=adjacency)
    if format_ is Format.json:
        print_json(answer)
        return
    for reading in answer["readings"]:
        at = f" at δ {reading['delta']:g}" if reading["delta"] is not None else ""
        order = f", order {number(reading['order'])}" if reading["order"] is not None else ""
        console().print(f"{reading['name']:<11} {reading['quantity']} {up(reading['value'])}{at}{order}")
        for note in [reading["holds"], *reading["warnings"]]:
            print_indented(note, 12, "dim")
    show_notes(answer)
