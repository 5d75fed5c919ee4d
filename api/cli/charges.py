"""`odometer charge`, `check`, `convert`: what a release costs, before it goes out."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from api.cli import faults, words
from api.cli.common import (
    DEFAULT_URL,
    Format,
    Key,
    Output,
    Url,
    connected,
    end,
    indented,
    number,
    out,
    print_json,
    up,
)
from api.cli.tables import budget_blocks, order_note

Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="The dataset's name.", show_default=False)]
Kind = Annotated[
    str | None,
    typer.Argument(
        metavar="MECHANISM", help="Kind of mechanism: `odometer mechanisms` lists them.", show_default=False
    ),
]
Parameters = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME=VALUE…",
        help="Its parameters, exactly as written: noise_multiplier=10, base.kind=gaussian, orders=2,4,8.",
        show_default=False,
    ),
]
Count = Annotated[
    int | None,
    typer.Option(
        "--count",
        "-n",
        min=1,
        metavar="N",
        help="How many times it runs. 1 unless given.",
        show_default=False,
    ),
]
Json = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="JSON",
        help="Instead of words: a mechanism, or a list of mechanism and count that is charged all or "
        "nothing; - reads it from the standard input.",
        show_default=False,
    ),
]
Adjacency = Annotated[
    str | None,
    typer.Option(
        metavar="ADJACENCY",
        help="The adjacency the parameters were computed for; refused if the dataset's differs.",
    ),
]


def charge(
    dataset: Dataset,
    mechanism: Kind = None,
    parameters: Parameters = None,
    count: Count = None,
    json_: Json = None,
    adjacency: Adjacency = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Only to ask again for the very same work, after an unknown outcome. New unless given.",
            show_default=False,
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Record a charge before its release.

    Release only when the exit status is 0; whatever else it is: release nothing.

    odometer charge adult gaussian noise_multiplier=10 --count 5

    odometer charge adult poisson_subsampled base.kind=gaussian base.noise_multiplier=1.1 sampling_rate=0.01
    """
    from odometer_client.keys import new_key

    what, times = _asked(mechanism, parameters, count, json_)
    once = idempotency_key or new_key()
    try:
        with connected(url, key) as client:
            receipt = client.charge(dataset, what, times, key=once, adjacency=adjacency)
    except KeyboardInterrupt:
        end(
            f"interrupted: it is not known whether this was recorded. Release nothing. {_again(once)}",
            faults.UNSURE,
        )
    except typer.Exit as ended:
        if ended.exit_code == faults.UNSURE:
            typer.echo(f"Release nothing. {_again(once)}", err=True)
        raise
    if format_ is Format.json:
        print_json(receipt)
        return
    if receipt.replayed:
        out.print("This was charged before, under the same key. It is the same charge, not a new one:")
    out.print(f"charged  {dataset}, entry {receipt.sequence}")
    out.print(f"hash     {receipt.hash}", soft_wrap=True)
    out.print(f"loss     {_loss(receipt.loss)}")
    budget_blocks(receipt.left)
    order_note(dataset, receipt.left)


def _again(key: str) -> str:
    return f"To ask again for the very same charge: --idempotency-key {key}"


def check(
    dataset: Dataset,
    mechanism: Kind = None,
    parameters: Parameters = None,
    count: Count = None,
    json_: Json = None,
    adjacency: Adjacency = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Ask whether a charge would fit, and charge nothing.

    Exit status 0: it would fit; 1: it would not.
    """
    what, times = _asked(mechanism, parameters, count, json_)
    with connected(url, key) as client:
        answer = client.check(dataset, what, times, adjacency=adjacency)
    if format_ is Format.json:
        print_json(answer)
    elif answer.fits:
        out.print("It would fit, and leave:")
        budget_blocks(answer.left)
        order_note(dataset, answer.left)
    elif not answer.refusals:
        out.print("It would be refused: the dataset is closed.")
    else:
        out.print("It would be refused.")
        for line in [*faults.refusals(answer.refusals), *faults.would_fit(answer.would_fit)]:
            out.print(line)
    raise typer.Exit(0 if answer.fits else faults.REFUSED)


def convert(
    mechanism: Kind = None,
    parameters: Parameters = None,
    count: Count = None,
    json_: Json = None,
    delta: Annotated[
        float | None, typer.Option(parser=words.number, metavar="NUMBER", help="Read ε at this δ.")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(parser=words.number, metavar="NUMBER", help="Or read δ at this ε.")
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
    what, times = _asked(mechanism, parameters, count, json_)
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


def _asked(
    kind: str | None, parameters: list[str] | None, count: int | None, json_: str | None
) -> tuple[Any, int | None]:
    """(mechanism or list of charges, count), from words or from JSON."""
    if (kind is None) == (json_ is None):
        raise typer.BadParameter("say which mechanism: gaussian noise_multiplier=10, or --json '{…}'")
    if json_ is None:
        return words.mechanism(str(kind), parameters or ()), count
    what = words.charges(json_)
    if isinstance(what, list) and count is not None:
        raise typer.BadParameter("a list says the count of each mechanism itself: leave --count out")
    return what, count


def _loss(loss: Mapping[str, float | None]) -> str:
    shown = (("pure", "pure ε"), ("rho", "ρ"), ("mu", "μ"), ("delta", "δ"))
    return ", ".join(f"{letter} {up(loss.get(name))}" for name, letter in shown)
