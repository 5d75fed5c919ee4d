"""`odometer dataset`: open, show, list and close datasets."""

from typing import Annotated, Any

import typer

from odometer_client import wording
from odometer_client.connection import DEFAULT_URL
from privacy_odometer.cli import parsing, partitions
from privacy_odometer.cli.output import Format, Key, Output, Url, connected, out, print_json
from privacy_odometer.cli.tables import budget_blocks, dataset_line

app = typer.Typer(help="Open, show, list and close datasets.", no_args_is_help=True)
app.add_typer(partitions.app, name="partition")
Name = Annotated[str, typer.Argument(metavar="DATASET", help="The dataset's name.", show_default=False)]


@app.command()
def create(
    name: Name,
    unit: Annotated[str, typer.Option(metavar="TEXT", help="What is protected: person, record, device, …")],
    adjacency: Annotated[
        str,
        typer.Option(
            metavar="ADJACENCY", help="add_remove, replace_one or zero_out: when two are neighbours."
        ),
    ],
    delta: Annotated[
        float | None,
        typer.Option(
            parser=parsing.number,
            metavar="NUMBER",
            help="δ of the readings, well below 1 / units; that of the budgets unless given.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:KIND:LIMITS",
            help="life:approximate:epsilon=3,delta=1e-5, or pure:epsilon, zcdp:rho, renyi:order,epsilon, "
            "gdp:mu in the same way, or JSON. Also scope=team/*, window=day, reserved=research:0.3. May be "
            "repeated: all must hold.",
            show_default=False,
        ),
    ] = None,
    odometer_only: Annotated[bool, typer.Option("--odometer-only", help="Count without a limit.")] = False,
    delta_add: Annotated[
        float | None,
        typer.Option(parser=parsing.number, metavar="NUMBER", help="Part of δ kept for approximate charges."),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help="What it is mostly for: a list of mechanism and count.", show_default=False
        ),
    ] = None,
    composition: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="How charges compose: sequential (unless given), by_partition (disjoint data) or by_unit "
            "(each unit randomises its own data).",
            show_default=False,
        ),
    ] = None,
    partition: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A partition, with by_partition. May be repeated.", show_default=False
        ),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Over how many streams units are spread, with by_unit."),
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Open a dataset's ledger. Its name, unit, adjacency and δ are fixed for good."""
    more: dict[str, Any] = {}
    if odometer_only:
        more["odometer_only"] = True
    if delta_add is not None:
        more["delta_add"] = delta_add
    if workload is not None:
        more["workload"] = parsing.read_json(workload)
    further = {"composition": composition, "partitions": partition, "shards": shards}
    more |= {name_: value for name_, value in further.items() if value}
    delta, budgets = _one_delta(delta, [parsing.budget(text) for text in budget or ()])
    with connected(url, key, create=True) as client:
        made = client.create_dataset(
            name, unit=unit, adjacency=adjacency, delta=delta, budgets=budgets, **more
        )
    _show(made, format_)


def _one_delta(delta: float | None, budgets: list[dict[str, Any]]) -> tuple[float, list[dict[str, Any]]]:
    """δ of the readings and of the budgets: what is said once holds for both."""
    said = {one["delta"] for one in budgets if one.get("kind") == "approximate" and "delta" in one}
    if delta is None and len(said) != 1:
        why = "the budgets have several" if said else "no budget has one"
        raise typer.BadParameter(f"give --delta, the δ of the readings: {why}")
    found = said.pop() if delta is None else delta
    missing = {"delta": found}
    return found, [missing | one if one.get("kind") == "approximate" else one for one in budgets]


@app.command()
def show(name: Name, url: Url = DEFAULT_URL, key: Key = None, format_: Output = Format.text) -> None:
    """Show a dataset and its budgets."""
    with connected(url, key) as client:
        _show(client.dataset(name), format_)


@app.command("list")
def list_(url: Url = DEFAULT_URL, key: Key = None, format_: Output = Format.text) -> None:
    """List the datasets. Their budgets: `odometer status`."""
    with connected(url, key) as client:
        found = list(client.datasets())
    if format_ is Format.json:
        print_json(found)
        return
    for dataset in found:
        out.print(dataset_line(dataset))
    if not found:
        out.print("There is no dataset yet: odometer dataset create")


@app.command()
def close(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Take no more charges, for ever. The ledger stays."""
    if not yes:
        typer.confirm(f"Close {name} for ever?", abort=True, err=True)
    with connected(url, key) as client:
        _show(client.close_dataset(name), format_)


def _show(dataset: Any, format_: Format) -> None:
    if format_ is Format.json:
        print_json(dataset)
        return
    out.print(dataset_line(dataset))
    kept = f"{dataset['delta_add']:g} of it is kept for charges stated as (ε, δ) (delta_add)"
    out.print(f"  δ {dataset['delta']:g}; {kept}")
    out.print(f"  opened {dataset['created']}")
    budget_blocks(dataset["budgets"])
    for note in wording.notes(dataset):
        out.print(note, soft_wrap=True)
