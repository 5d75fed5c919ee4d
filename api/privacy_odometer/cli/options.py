"""Arguments and options that several commands share."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from privacy_odometer.cli import parsing


class Format(StrEnum):
    """How a result is printed."""

    text = "text"
    json = "json"


class RoleName(StrEnum):
    """The roles of principals. Each role may do what the roles before it may."""

    reader = "reader"
    charger = "charger"
    admin = "admin"


# -- where, and how it is printed

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="ODOMETER_URL",
        metavar="URL",
        help="The service; or, for a ledger without a service, sqlite:///path/to/ledger.sqlite or redis://host.",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar="ODOMETER_KEY",
        metavar="KEY",
        help="The API key. Prefer the environment variable: other users of the machine can see the options "
        "of a running command.",
        show_default=False,
    ),
]
Output = Annotated[Format, typer.Option("--format", metavar="FORMAT", help="text or json.")]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Work directly in this ledger, without the service and without a key: "
        "sqlite:///path/to/ledger.sqlite, redis://host.",
        show_default=False,
    ),
]

# -- what is charged

Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="The dataset's name.", show_default=False)]
Kind = Annotated[
    str | None,
    typer.Argument(
        metavar="MECHANISM",
        help="The kind of mechanism. `odometer mechanisms` lists the kinds.",
        show_default=False,
    ),
]
Parameters = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME=VALUE…",
        help="The mechanism's parameters: noise_multiplier=10, base.kind=gaussian, orders=2,4,8. Numbers are "
        "used exactly as written.",
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
        help="How many times the mechanism runs. Default: 1.",
        show_default=False,
    ),
]
Json = Annotated[
    str | None,
    typer.Option(
        "--from-json",
        "--json",
        metavar="JSON",
        help='The mechanism as JSON, {"kind": "gaussian", "noise_multiplier": 10}, or a list of charges, '
        '[{"mechanism": {"kind": …}, "count": 5}, …], of which all are charged or none. '
        "- reads the JSON from the standard input.",
        show_default=False,
    ),
]
Adjacency = Annotated[
    str | None,
    typer.Option(
        metavar="ADJACENCY",
        help="The adjacency that the parameters were computed for. Refused if the dataset has another one.",
    ),
]
IdempotencyKey = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="The key of an earlier request whose outcome is unknown, to send the same request again. "
        "Default: a new key.",
        show_default=False,
    ),
]
Partition = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="A partition that is read (datasets that compose by_partition). May be repeated.",
        show_default=False,
    ),
]
AllPartitions = Annotated[
    bool,
    typer.Option("--all-partitions", help="All partitions are read, including those that are added later."),
]
Unit = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="A unit whose data is used (datasets that compose by_unit). May be repeated.",
        show_default=False,
    ),
]
GroupName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="A group of runs that is charged at once. Needs --runs.", show_default=False
    ),
]
Runs = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="The number of runs in the group. --count is the count of one run.",
        show_default=False,
    ),
]
Principal = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="The principal to charge instead of your own. Needs a key that was made with --acts-for.",
        show_default=False,
    ),
]

# -- principals and keys

RoleArgument = Annotated[
    RoleName,
    typer.Argument(
        metavar="ROLE", help="reader, charger or admin. Each role may do what those before it may."
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="The principal's name. It cannot be changed, no other principal can have it, and it is stored "
        "apart from the ledger's entries.",
        show_default=False,
    ),
]
Team = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The team whose odometer and budgets count its charges.",
        show_default=False,
    ),
]
ActsFor = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID",
        help="A principal that it may charge instead of itself; * for any. May be repeated.",
        show_default=False,
    ),
]
ExpiresIn = Annotated[
    int | None,
    typer.Option(
        "--expires-in",
        "--expires-in-s",
        parser=parsing.duration_s,
        metavar="TIME",
        help="How long the key is valid, as 90d, 12h or seconds; at most ten years. Default: until it is "
        "revoked.",
        show_default=False,
    ),
]
PrincipalId = Annotated[
    str, typer.Argument(parser=parsing.identity, metavar="ID", help="The principal's id, p_….")
]
KeyId = Annotated[
    str,
    typer.Argument(parser=parsing.identity, metavar="ID", help="The key's id, k_…. It is not the token."),
]


def requested(
    kind: str | None, parameters: list[str] | None, count: int | None, json_: str | None
) -> tuple[Any, int | None]:
    """(a mechanism or a list of charges, its count) from the arguments, or from JSON."""
    if (kind is None) == (json_ is None):
        raise typer.BadParameter("name a mechanism: gaussian noise_multiplier=10, or --from-json '{…}'")
    if json_ is None:
        return parsing.mechanism(str(kind), parameters or ()), count
    mechanisms = parsing.charges(json_)
    if isinstance(mechanisms, list) and count is not None:
        raise typer.BadParameter("a list of charges has a count for each of them: leave --count out")
    return mechanisms, count


def reads_several(partition: list[str] | None, all_partitions: bool) -> bool:
    """Whether a charge reads more than one partition."""
    return all_partitions or len(partition or ()) > 1


def charge_options(
    adjacency: str | None,
    partition: list[str] | None,
    all_partitions: bool,
    group: str | None,
    runs: int | None,
    principal: str | None,
) -> dict[str, Any]:
    """The client's keyword arguments for the options of a charge, apart from its units."""
    if partition and all_partitions:
        raise typer.BadParameter("give either --partition or --all-partitions")
    if (group is None) != (runs is None):
        raise typer.BadParameter("--group and --runs go together")
    options = {
        "adjacency": adjacency,
        "partitions": "all" if all_partitions else partition,
        "group": None if group is None else (group, runs),
        "principal": principal,
    }
    return {name: value for name, value in options.items() if value}
