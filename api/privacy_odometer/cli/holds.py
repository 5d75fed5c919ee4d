"""`odometer hold`, `settle`, `holds`: charges ahead of the work, settled for what was used."""

from typing import Annotated

import typer

from odometer_client.connection import DEFAULT_URL
from odometer_client.wording import mechanism_words, moment
from privacy_odometer.cli import parsing
from privacy_odometer.cli.charges import certain, in_epsilon, loss_line, show_receipt
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
from privacy_odometer.cli.output import Format, Key, Output, Url, connected, out, print_json
from privacy_odometer.cli.tables import budget_blocks


def hold(
    dataset: Dataset,
    expires_in_s: Annotated[
        int,
        typer.Option(
            "--expires-in",
            "--expires-in-s",
            parser=parsing.duration_s,
            metavar="TIME",
            help="How long it can be settled, as 7d, 12h, 30m, 45s or seconds; afterwards all of it is spent "
            "for good. At most a year.",
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
    idempotency_key: Again = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Charge ahead of the work. It is spent from now on; `odometer settle` gives back what was not used.

    odometer hold adult gaussian noise_multiplier=10 --count 100 --expires-in 1d
    """
    from odometer_client.keys import new_key

    what, times = asked(mechanism, parameters, count, json_)
    options = about(adjacency, partition, all_partitions, group, runs, principal)
    once = idempotency_key or new_key()
    with certain(once), connected(url, key) as client:
        receipt = client.hold(
            dataset, what, times, expires_in_s=expires_in_s, key=once, units=unit, **options
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
            help="How many releases went out, of all runs; of a list, a number for each of its charges.",
            show_default=False,
        ),
    ],
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Charge a hold for what was used of it, once, and give back the rest.

    Never say fewer than went out. The same again changes nothing.

    odometer settle adult 2.1f0c9a3e 37

    USED counts releases: of 5 runs of 100 steps, 3 that started are 300.
    """
    with connected(url, key) as client:
        settled = client.settle(dataset, hold_id, used[0] if len(used) == 1 else used)
    if format_ is Format.json:
        print_json(settled)
        return
    if settled.replayed:
        out.print("It was settled before, for the same:")
    counts = ", ".join(f"{mine} of {held}" for mine, held in zip(settled.used, settled.held, strict=True))
    out.print(f"settled  {dataset}, hold {hold_id}: {counts} used, entry {settled['sequence']}")
    budget_blocks(settled.left)


def holds(dataset: Dataset, url: Url = DEFAULT_URL, key: Key = None, format_: Output = Format.text) -> None:
    """List the holds that can still be settled. They are part of what is spent."""
    with connected(url, key) as client:
        found = client.holds(dataset)
    if format_ is Format.json:
        print_json(found)
        return
    for item in found:
        what = "; ".join(f"{one['count']} × {mechanism_words(one['mechanism'])}" for one in item.charges)
        group = f", {item['group']['runs']} runs of {item['group']['name']}" if item["group"] else ""
        out.print(f"{item.id:>6}  until {moment(item.expires)}  {what}{group}")
        out.print(f"        by {item['by'] or item.principal}, loss {loss_line(item['loss'])}", style="dim")
    if not found:
        out.print("No hold is open.")
