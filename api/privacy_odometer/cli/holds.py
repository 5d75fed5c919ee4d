"""`odometer hold`, `settle`, `holds`: charge ahead of the work, then settle for what was used."""

from typing import Annotated

import typer

from odometer_client.connection import DEFAULT_URL
from odometer_client.wording import mechanism_words, moment
from privacy_odometer.cli import parsing
from privacy_odometer.cli.budget_tables import budget_blocks
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
from privacy_odometer.cli.output import console, print_json
from privacy_odometer.cli.receipts import in_epsilon, loss_line, show_receipt, unknown_outcome_explained


def hold(
    dataset: Dataset,
    expires_in_s: Annotated[
        int,
        typer.Option(
            "--expires-in",
            "--expires-in-s",
            parser=parsing.duration_s,
            metavar="TIME",
            help="How long the hold can be settled, as 7d, 12h, 30m, 45s or seconds; at most a year. "
            "After that all of it stays spent.",
        ),
    ],
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
    """Charge ahead of the work. It counts as spent; `odometer settle` gives back what was not used.

    odometer hold adult gaussian noise_multiplier=10 --count 100 --expires-in 1d
    """
    from odometer_client.keys import new_key

    mechanisms, times = requested(mechanism, parameters, count, json_)
    options = charge_options(adjacency, partition, all_partitions, group, runs, principal)
    once = idempotency_key or new_key()
    with unknown_outcome_explained(once), connected(url, key) as client:
        receipt = client.hold(
            dataset, mechanisms, times, expires_in_s=expires_in_s, key=once, units=unit, **options
        )
        if format_ is Format.json:
            print_json(receipt)
            return
        shown = in_epsilon(client, receipt)
    show_receipt(shown, "held", several=reads_several(partition, all_partitions))


def settle(
    dataset: Dataset,
    hold_id: Annotated[
        str,
        typer.Argument(metavar="HOLD", help="The hold's id, with its hash: 12.0a1b2c3d.", show_default=False),
    ],
    used: Annotated[
        list[int],
        typer.Argument(
            min=0,
            metavar="USED…",
            help="The number of releases that went out, in all runs together; for a list of charges, one "
            "number for each charge.",
            show_default=False,
        ),
    ],
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Charge a hold for what was used, and give back the rest. A hold is settled once.

    Never give fewer releases than went out. Settling again with the same numbers changes nothing.

    odometer settle adult 2.1f0c9a3e 37

    USED counts releases: if 3 of 5 runs of 100 steps were started, it is 300.
    """
    with connected(url, key) as client:
        settled = client.settle(dataset, hold_id, used[0] if len(used) == 1 else used)
    if format_ is Format.json:
        print_json(settled)
        return
    if settled.replayed:
        console().print("It was settled before, with the same numbers:")
    counts = ", ".join(f"{mine} of {held}" for mine, held in zip(settled.used, settled.held, strict=True))
    console().print(f"settled  {dataset}, hold {hold_id}: {counts} used, entry {settled['sequence']}")
    budget_blocks(settled.left)


def holds(dataset: Dataset, url: Url = DEFAULT_URL, key: Key = None, format_: Output = Format.text) -> None:
    """List the holds that can still be settled. They count as spent."""
    with connected(url, key) as client:
        found = client.holds(dataset)
    if format_ is Format.json:
        print_json(found)
        return
    for item in found:
        charges = "; ".join(f"{one['count']} × {mechanism_words(one['mechanism'])}" for one in item.charges)
        group = f", {item['group']['runs']} runs of {item['group']['name']}" if item["group"] else ""
        console().print(f"{item.id:>6}  until {moment(item.expires)}  {charges}{group}")
        console().print(
            f"        by {item['by'] or item.principal}, loss {loss_line(item['loss'])}", style="dim"
        )
    if not found:
        console().print("No hold is open.")
