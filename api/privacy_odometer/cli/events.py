"""`odometer events`: charge or check a plan that is written as a DpEvent."""

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from odometer_accountant.bounds import BODY_MAX
from odometer_client import wording
from odometer_client.connection import DEFAULT_URL
from odometer_client.wording import mechanism_words
from privacy_odometer.cli import errors, parsing
from privacy_odometer.cli.connection import connected
from privacy_odometer.cli.errors import end
from privacy_odometer.cli.options import (
    AllPartitions,
    Dataset,
    Format,
    IdempotencyKey,
    Key,
    Output,
    Partition,
    Principal,
    Url,
    charge_options,
    reads_several,
)
from privacy_odometer.cli.output import console, print_json, printable
from privacy_odometer.cli.receipts import (
    in_epsilon,
    show_answer,
    show_notes,
    show_receipt,
    unknown_outcome_explained,
)

STREAM: Final = "-"
"""The file name that stands for the standard input."""


def events(
    dataset: Dataset,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A DpEvent as JSON; - is the standard input.", show_default=False
        ),
    ],
    adjacency: Annotated[
        str,
        typer.Option(
            metavar="ADJACENCY",
            help="The adjacency that the event's numbers were computed for. Refused if the dataset has "
            "another one.",
            show_default=False,
        ),
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Only check whether it would fit, and charge nothing.")
    ] = False,
    partition: Partition = None,
    all_partitions: AllPartitions = False,
    principal: Principal = None,
    idempotency_key: IdempotencyKey = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Charge a whole plan, a DpEvent of dp_accounting, before its first step.

    Release only if the exit status is 0. After --check release nothing: 0 then means that it would fit.

    odometer events adult plan.json --adjacency add_remove --check

    Prints the charges of the plan, and the parts that lose nothing. An unknown event is refused with its
    name and its place in the plan.
    """
    from odometer_client.keys import new_key

    if check and idempotency_key:
        raise typer.BadParameter("--check charges nothing: leave --idempotency-key out")
    event = read_event(file)
    options = charge_options(adjacency, partition, all_partitions, None, None, principal)
    several = reads_several(partition, all_partitions)
    once = idempotency_key or new_key()
    with connected(url, key) as client:
        charges = client.dp_event_charges(event)
        if not charges:
            end("\n".join(charges.notes), errors.REFUSED)
        if format_ is Format.text:
            for mechanism, count in charges:
                console().print(f"{count} × {mechanism_words(mechanism)}", soft_wrap=True)
            show_notes({"notes": charges.notes})
        else:  # the standard output is one JSON document
            for note in wording.notes({"notes": charges.notes}):
                print(printable(note), file=sys.stderr)
        if check:
            show_answer(dataset, client.check(dataset, charges, **options), format_, several=several)
    with unknown_outcome_explained(once), connected(url, key) as client:
        receipt = client.charge(dataset, charges, key=once, **options)
        if format_ is Format.json:
            print_json(receipt)
            return
        shown = in_epsilon(client, receipt)
    show_receipt(shown, "charged", several=several)


def read_event(file: str) -> dict[str, Any]:
    """The event in a JSON file, or in its field `dp_event`. Raises BadParameter."""
    try:
        if file == STREAM:
            read = sys.stdin.buffer.read(BODY_MAX + 1)
        else:
            with Path(file).open("rb") as opened:
                read = opened.read(BODY_MAX + 1)
        text = read.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from None
    if len(read) > BODY_MAX:
        raise typer.BadParameter(f"{file} is larger than {BODY_MAX} bytes, the most that a request may have")
    event = parsing.read_json(text)
    if isinstance(event, dict) and set(event) == {"dp_event"}:
        event = event["dp_event"]
    if not isinstance(event, dict) or "class_name" not in event:
        raise typer.BadParameter(
            f'{file} is not an event such as {{"class_name": "GaussianDpEvent", "noise_multiplier": 2.0}}'
        )
    return event
