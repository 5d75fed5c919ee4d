"""What `charge`, `hold` and `check` ask for: the mechanism, and whose data it is about, from words."""

from typing import Annotated, Any

import typer

from privacy_odometer.cli import parsing

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
        "--from-json",
        "--json",
        metavar="JSON",
        help='Instead of words: a mechanism, {"kind": "gaussian", "noise_multiplier": 10}, or a list that is '
        'charged all or nothing, [{"mechanism": {"kind": …}, "count": 5}, …]; - reads it from the standard '
        "input.",
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
Again = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Only to ask again for the very same work, after an unknown outcome. New unless given.",
        show_default=False,
    ),
]
Partition = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="A partition that is read, of a dataset that composes by_partition. May be repeated.",
        show_default=False,
    ),
]
AllPartitions = Annotated[
    bool, typer.Option("--all-partitions", help="Every partition is read, later ones too.")
]
Unit = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Whose data it is, of a dataset that composes by_unit. May be repeated.",
        show_default=False,
    ),
]
GroupName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="The runs of this group, charged at once: with --runs.", show_default=False
    ),
]
Runs = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="How many runs the group has; --count is that of one.", show_default=False
    ),
]
Principal = Annotated[
    str | None,
    typer.Option(metavar="ID", help="On whose behalf; needs a key made with --acts-for.", show_default=False),
]


def asked(
    kind: str | None, parameters: list[str] | None, count: int | None, json_: str | None
) -> tuple[Any, int | None]:
    """(mechanism or list of charges, count), from words or from JSON."""
    if (kind is None) == (json_ is None):
        raise typer.BadParameter("say which mechanism: gaussian noise_multiplier=10, or --from-json '{…}'")
    if json_ is None:
        return parsing.mechanism(str(kind), parameters or ()), count
    what = parsing.charges(json_)
    if isinstance(what, list) and count is not None:
        raise typer.BadParameter("a list says the count of each mechanism itself: leave --count out")
    return what, count


def reads_several(partition: list[str] | None, all_partitions: bool) -> bool:
    """Whether a charge reads more than one partition."""
    return all_partitions or len(partition or ()) > 1


def about(
    adjacency: str | None,
    partition: list[str] | None,
    all_partitions: bool,
    group: str | None,
    runs: int | None,
    principal: str | None,
) -> dict[str, Any]:
    """The client's words for the options that say whose data a charge is about; units apart."""
    if partition and all_partitions:
        raise typer.BadParameter("give either --partition or --all-partitions")
    if (group is None) != (runs is None):
        raise typer.BadParameter("--group and --runs go together")
    found = {
        "adjacency": adjacency,
        "partitions": "all" if all_partitions else partition,
        "group": None if group is None else (group, runs),
        "principal": principal,
    }
    return {name: value for name, value in found.items() if value}
