"""`odometer principal`: who is charged, whatever keys they have; and what `odometer key` shares with it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from odometer_client.connection import DEFAULT_URL
from odometer_client.wording import moment
from privacy_odometer.cli import parsing
from privacy_odometer.cli.output import (
    Format,
    Key,
    Output,
    Url,
    connected,
    is_store,
    out,
    plain,
    print_json,
    stored,
)

if TYPE_CHECKING:
    from odometer_accountant.service.api_keys import KeyRing
    from odometer_client import Client

T = TypeVar("T")

BY: Final = "command-line"
"""Who makes keys offline: whoever may write the ledger's file."""
app = typer.Typer(
    help="Make, list and change principals: who is charged, whatever keys they have.",
    no_args_is_help=True,
)


class RoleName(StrEnum):
    """What a principal may do; each may do what the ones before it may."""

    reader = "reader"
    charger = "charger"
    admin = "admin"


StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Straight in this ledger instead of through the service: sqlite:///path/to/ledger.sqlite, redis://host.",
        show_default=False,
    ),
]
RoleArgument = Annotated[
    RoleName,
    typer.Argument(metavar="ROLE", help="reader, charger or admin: each may do what those before it may."),
]
Name = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Whose it is, for good: kept apart from the ledger's entries. Nobody else can be called that.",
        show_default=False,
    ),
]
Team = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The team whose odometer and budgets its charges count on.",
        show_default=False,
    ),
]
ActsFor = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID",
        help="A principal on whose behalf it may charge, * for any. May be repeated.",
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
        help="How long the key is taken, as 90d, 12h or seconds, at most ten years; until it is revoked "
        "unless said.",
        show_default=False,
    ),
]
PrincipalId = Annotated[
    str, typer.Argument(parser=parsing.identity, metavar="ID", help="The principal's id, p_….")
]


@app.command()
def create(
    role: RoleArgument,
    name: Name = None,
    team: Team = None,
    acts_for: ActsFor = None,
    store: StoreUrl = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Make a principal, who has no key yet; `odometer key add` makes one."""
    if target := in_store(store, url):
        from odometer_accountant.service.principals import NewPrincipal

        wanted = without(role=role.value, name=name, team=team, acts_for=acts_for)
        with ring_of(target, NewPrincipal, wanted) as (ring, form, by):
            made = ring.principal(ring.create_principal(form.role, form.name, by, form.team, form.acts_for))
    else:
        with connected(url, key) as client:
            made = dict(client.create_principal(role.value, name, team=team, acts_for=acts_for or ()))
    _show(made, format_)


@app.command("list")
def list_(
    store: StoreUrl = None, url: Url = DEFAULT_URL, key: Key = None, format_: Output = Format.text
) -> None:
    """List the principals."""
    found = through(
        store, url, key, lambda ring: ring.principals(), lambda client: [*map(dict, client.principals())]
    )
    if format_ is Format.json:
        print_json(found)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("id", "name", "role", "team", "created", "keys"):
        table.add_column(title, no_wrap=True)
    table.add_column("acts for")
    for item in found:
        name = "(erased)" if item.get("name_erased") else plain_name(item)
        team, acts_for = item.get("team") or "", ", ".join(item.get("acts_for") or ())
        created = moment(item["created"])
        table.add_row(item["id"], name, item["role"], team, created, str(item["keys"]), acts_for)
    print_table(table, found)


@app.command()
def show(
    principal: PrincipalId,
    store: StoreUrl = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Show a principal."""
    found = through(
        store,
        url,
        key,
        lambda ring: ring.principal(principal),
        lambda client: dict(client.principal(principal)),
    )
    _show(found, format_)


@app.command("set")
def set_(
    principal: PrincipalId,
    role: Annotated[
        RoleName | None,
        typer.Option(metavar="ROLE", help="reader, charger or admin.", show_default=False),
    ] = None,
    team: Team = None,
    no_team: Annotated[bool, typer.Option("--no-team", help="It is of no team from now on.")] = False,
    acts_for: ActsFor = None,
    acts_for_nobody: Annotated[
        bool, typer.Option("--acts-for-nobody", help="It charges on nobody's behalf from now on.")
    ] = False,
    store: StoreUrl = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Change what a principal may do, from now on. What is left out stays as it is.

    What was charged stays where it is, with the team of then.
    """
    if (team and no_team) or (acts_for and acts_for_nobody):
        raise typer.BadParameter("give one of --team and --no-team, and of --acts-for and --acts-for-nobody")

    def after(now: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "role": role.value if role else now["role"],
            "team": None if no_team else team or now["team"],
            "acts_for": [] if acts_for_nobody else acts_for or now["acts_for"],
        }

    if target := in_store(store, url):
        from odometer_accountant.requests.json_input import validated
        from odometer_accountant.service.principals import ChangedPrincipal

        with _ring(target) as ring:
            now = ring.principal(principal)
            form = validated(ChangedPrincipal, after(now))
            ring.change_principal(principal, form.role, form.team, form.acts_for, BY, now["etag"])
            found = ring.principal(principal)
    else:
        with connected(url, key) as client:
            read = client.principal(principal)
            found = dict(client.set_principal(principal, etag=read["etag"], **after(read)))
    _show(found, format_)


@app.command("erase-name")
def erase_name(
    principal: PrincipalId,
    store: StoreUrl = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Erase what a principal is called. Nobody else will be called that."""
    through(
        store,
        url,
        key,
        lambda ring: ring.erase_name(principal, BY),
        lambda client: client.erase_name(principal),
    )
    out.print(f"erased the name of {principal}")


def _show(found: Mapping[str, Any], format_: Format) -> None:
    if format_ is Format.json:
        print_json(found)
        return
    for field in ("id", "name", "role", "team"):
        if found.get(field):
            out.print(f"{field:<10} {found[field]}", soft_wrap=True)
    if found.get("acts_for"):
        out.print(f"acts for   {', '.join(found['acts_for'])}", soft_wrap=True)
    out.print(f"created    {moment(found['created'])}")
    out.print(f"keys       {found['keys']} in use")


def plain_name(item: Mapping[str, Any]) -> str:
    """What a principal is called."""
    return plain(str(item["name"])) if item.get("name") else ""


def print_table(table: Table, items: Sequence[Mapping[str, Any]]) -> None:
    """A table whose ids are never cut, however narrow the terminal is."""
    if not items:
        return
    widest = Measurement.get(out, out.options.update(max_width=1000), table).maximum
    if widest <= out.width:
        out.print(table)
        return
    if not out.is_terminal:  # for grep and less, which cut nothing
        Console(file=out.file, width=widest, markup=False, highlight=False, emoji=False).print(table)
        return
    titles = [str(column.header) for column in table.columns]
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        for title, cell in zip(titles, cells, strict=True):
            if str(cell):
                out.print(f"{title:<14} {cell}", soft_wrap=True)
        out.print()


def without(**given: Any) -> dict[str, Any]:
    """What was given, without what was not."""
    return {name: value for name, value in given.items() if value is not None}


def in_store(store: str | None, url: str) -> str | None:
    """The ledger to work on directly, None to go through the service."""
    return store or (url if is_store(url) else None)


@contextmanager
def ring_of(url: str, form: Any, wanted: dict[str, Any]) -> Iterator[tuple["KeyRing", Any, str]]:
    """The keys of a ledger, what is wanted of them under the service's rules, and who asks."""
    from odometer_accountant.requests.json_input import validated

    with _ring(url) as ring:
        yield ring, validated(form, wanted), BY


def through(
    store: str | None,
    url: str,
    key: str | None,
    there: Callable[["KeyRing"], T],
    asked: Callable[["Client"], T],
) -> T:
    """What `there` finds straight in a ledger, or `asked` through the service."""
    if target := in_store(store, url):
        with _ring(target) as ring:
            return there(ring)
    with connected(url, key) as client:
        return asked(client)


@contextmanager
def _ring(url: str) -> Iterator["KeyRing"]:
    from odometer_accountant.service.api_keys import KeyRing

    with stored(url) as opened:
        yield KeyRing(opened)
