"""`odometer dataset`: open, show, list and close datasets, and add partitions; `odometer unfreeze`."""

from typing import Annotated, Any

import typer

from odometer_client import wording
from odometer_client.connection import DEFAULT_URL
from privacy_odometer.cli import errors, parsing
from privacy_odometer.cli.budget_tables import budget_blocks, dataset_line
from privacy_odometer.cli.connection import connected, stored
from privacy_odometer.cli.errors import end
from privacy_odometer.cli.options import Dataset, Format, Key, Output, Url
from privacy_odometer.cli.output import console, print_json
from privacy_odometer.cli.serve import read_settings

app = typer.Typer(help="Open, show, list and close datasets.", no_args_is_help=True)
partition_app = typer.Typer(help="Add partitions to a dataset.", no_args_is_help=True)
app.add_typer(partition_app, name="partition")


@app.command()
def create(
    name: Dataset,
    unit: Annotated[
        str, typer.Option(metavar="TEXT", help="The unit that is protected: person, record, device, …")
    ],
    adjacency: Annotated[
        str,
        typer.Option(
            metavar="ADJACENCY", help="add_remove, replace_one or zero_out: which datasets are neighbours."
        ),
    ],
    delta: Annotated[
        float | None,
        typer.Option(
            parser=parsing.number,
            metavar="NUMBER",
            help="δ of the readings, well below 1 / number of units. Default: δ of the budgets.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:KIND:LIMITS",
            help="life:approximate:epsilon=3,delta=1e-5, or pure:epsilon, zcdp:rho, renyi:order,epsilon, "
            "gdp:mu in the same way, or JSON. Also scope=team/*, window=day, reserved=research:0.3. May be "
            "repeated; a charge must fit all budgets.",
            show_default=False,
        ),
    ] = None,
    odometer_only: Annotated[
        bool, typer.Option("--odometer-only", help="Count the losses without a limit.")
    ] = False,
    delta_add: Annotated[
        float | None,
        typer.Option(
            parser=parsing.number,
            metavar="NUMBER",
            help="The part of δ that is kept for charges stated as (ε, δ).",
        ),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="The expected charges, a list of mechanisms with counts. Budgets are tuned for it.",
            show_default=False,
        ),
    ] = None,
    composition: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="How charges compose: sequential, by_partition (disjoint data) or by_unit (each unit "
            "randomises its own data). Default: sequential.",
            show_default=False,
        ),
    ] = None,
    partition: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A partition, for by_partition. May be repeated.", show_default=False
        ),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="The number of streams that units are spread over, for by_unit."
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Open a dataset with its ledger. The name, unit, adjacency and δ cannot be changed later."""
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
    """δ of the readings, and the budgets with a δ each. A δ that is given once is used for both."""
    given = {one["delta"] for one in budgets if one.get("kind") == "approximate" and "delta" in one}
    if delta is None and len(given) != 1:
        why = "the budgets have different ones" if given else "no budget has a δ"
        raise typer.BadParameter(f"give --delta, the δ of the readings: {why}")
    found = given.pop() if delta is None else delta
    missing = {"delta": found}
    return found, [missing | one if one.get("kind") == "approximate" else one for one in budgets]


@app.command()
def show(name: Dataset, url: Url = DEFAULT_URL, key: Key = None, format_: Output = Format.text) -> None:
    """Show a dataset and its budgets."""
    with connected(url, key) as client:
        _show(client.dataset(name), format_)


@app.command("list")
def list_(url: Url = DEFAULT_URL, key: Key = None, format_: Output = Format.text) -> None:
    """List the datasets. `odometer status` shows their budgets."""
    with connected(url, key) as client:
        found = list(client.datasets())
    if format_ is Format.json:
        print_json(found)
        return
    for dataset in found:
        console().print(dataset_line(dataset))
    if not found:
        console().print("There are no datasets yet. Open one: odometer dataset create")


@app.command()
def close(
    name: Dataset,
    yes: Annotated[bool, typer.Option("--yes", help="Close it without a question.")] = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Close a dataset for ever: it takes no more charges. Its ledger stays."""
    if not yes:
        typer.confirm(f"Close {name} for ever?", abort=True, err=True)
    with connected(url, key) as client:
        _show(client.close_dataset(name), format_)


def _show(dataset: Any, format_: Format) -> None:
    if format_ is Format.json:
        print_json(dataset)
        return
    console().print(dataset_line(dataset))
    kept = f"{dataset['delta_add']:g} of it is kept for charges stated as (ε, δ) (delta_add)"
    console().print(f"  δ {dataset['delta']:g}; {kept}")
    console().print(f"  opened {dataset['created']}")
    budget_blocks(dataset["budgets"])
    for note in wording.notes(dataset):
        console().print(note, soft_wrap=True)


@partition_app.callback()
def partition() -> None:
    """Add partitions to a dataset."""


@partition_app.command("add")
def add_partitions(
    dataset: Dataset,
    partitions: Annotated[
        list[str],
        typer.Argument(metavar="NAME…", help="The names, which cannot be changed later.", show_default=False),
    ],
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Add partitions. Each unit belongs to one partition and stays there.

    Earlier charges on all partitions count for the new ones too.
    """
    with connected(url, key) as client:
        changed = client.add_partitions(dataset, partitions)
    if format_ is Format.json:
        print_json(changed)
        return
    console().print(f"{dataset} has the partitions {', '.join(changed['partitions'])}")


def unfreeze(
    dataset: Dataset,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason, in one line. It is recorded as an entry.")
    ],
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The store, while no service runs on it. Only if all of DATASET is missing, or `~keys`, or "
            "`~ledger` for the whole ledger.",
        ),
    ] = None,
    witness: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="With --store: the witness file. Setting: ODOMETER_WITNESS."),
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Continue with a dataset whose ledger lost entries, without these entries.

    The lost entries spent budget that is not counted any more. If a copy of the store still has them, restore
    it instead. `odometer ledger` shows which entries are left.
    """
    if store is not None:
        _accept_missing(dataset, reason, store, witness)
        return
    with connected(url, key) as client:
        unfrozen = client.unfreeze(dataset, reason)
    if format_ is Format.json:
        print_json(unfrozen)
        return
    console().print(dataset_line(unfrozen))
    budget_blocks(unfrozen.budgets)


def _accept_missing(stream: str, reason: str, url: str, path: str | None) -> None:
    """Accept the loss of a whole stream. There is no ledger for an entry, so the witness records it."""
    from odometer_accountant.writer.witness import EVERYTHING
    from odometer_accountant.writer.writer import utc_now
    from privacy_odometer.witness_setup import default_witness, is_missing, open_witness

    settings = read_settings(**({"store": url} | ({"witness": path} if path else {})))
    witness = open_witness(settings.witness or default_witness(), url)
    if witness is None:
        end("there is no witness, so nothing was refused because of it", errors.REFUSED)
    if not is_missing(url) and _is_there(stream, url):
        end(
            f"{stream!r} is not missing: start the service, which freezes it, and unfreeze it there",
            errors.REFUSED,
        )
    known = witness.read()
    if not known or (stream != EVERYTHING and stream not in known):
        end(f"the witness {witness.path} has no record of {stream!r} in this store", errors.REFUSED)
    witness.accept(stream, reason, utc_now())
    console().print(f"{stream}: the service will continue without the lost entries", soft_wrap=True)


def _is_there(stream: str, url: str) -> bool:
    """Whether the stream has entries in the store; for the whole ledger, whether the store has any."""
    from odometer_accountant.stores import EMPTY_HEAD
    from odometer_accountant.writer.witness import EVERYTHING, KEYS

    with stored(url) as opened:
        if stream == EVERYTHING:
            return bool(opened.streams("", 1))
        return stream != KEYS and opened.load(stream, [])[0] != EMPTY_HEAD
