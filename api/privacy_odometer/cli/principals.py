"""`odometer principal`: make, list and change principals."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from odometer_client.connection import DEFAULT_URL
from odometer_client.wording import moment
from privacy_odometer.cli.key_admin import key_admin
from privacy_odometer.cli.options import (
    ActsFor,
    Format,
    Key,
    Name,
    Output,
    PrincipalId,
    RoleArgument,
    RoleName,
    StoreUrl,
    Team,
    Url,
)
from privacy_odometer.cli.output import console, print_json
from privacy_odometer.cli.tables import print_whole, shown_name, table_of

app = typer.Typer(
    help="Make, list and change principals: the persons and programs that are charged, whatever keys they "
    "have.",
    no_args_is_help=True,
)


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
    """Make a principal without a key. `odometer key add` makes a key for it."""
    with key_admin(store, url, key) as admin:
        made = dict(admin.create_principal(role.value, name, team=team, acts_for=acts_for or ()))
    _print(made, format_)


@app.command("list")
def list_(
    store: StoreUrl = None, url: Url = DEFAULT_URL, key: Key = None, format_: Output = Format.text
) -> None:
    """List the principals."""
    with key_admin(store, url, key) as admin:
        principals = [dict(item) for item in admin.principals()]
    if format_ is Format.json:
        print_json(principals)
        return
    table = table_of("id", "name", "role", "team", "created", "keys", last="acts for")
    for item in principals:
        name = "(erased)" if item.get("name_erased") else shown_name(item)
        team, acts_for = item.get("team") or "", ", ".join(item.get("acts_for") or ())
        created = moment(item["created"])
        table.add_row(item["id"], name, item["role"], team, created, str(item["keys"]), acts_for)
    print_whole(table)


@app.command()
def show(
    principal: PrincipalId,
    store: StoreUrl = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Show a principal."""
    with key_admin(store, url, key) as admin:
        found = dict(admin.principal(principal))
    _print(found, format_)


@app.command("set")
def set_(
    principal: PrincipalId,
    role: Annotated[
        RoleName | None,
        typer.Option(metavar="ROLE", help="reader, charger or admin.", show_default=False),
    ] = None,
    team: Team = None,
    no_team: Annotated[bool, typer.Option("--no-team", help="Take the principal out of its team.")] = False,
    acts_for: ActsFor = None,
    acts_for_nobody: Annotated[
        bool, typer.Option("--acts-for-nobody", help="The principal may charge only itself.")
    ] = False,
    store: StoreUrl = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Change the role, the team or the --acts-for of a principal. Omitted options stay as they are.

    Earlier charges keep the team that they were made with.
    """
    if (team and no_team) or (acts_for and acts_for_nobody):
        raise typer.BadParameter(
            "give either --team or --no-team, and either --acts-for or --acts-for-nobody"
        )
    with key_admin(store, url, key) as admin:
        now = admin.principal(principal)
        changed = admin.set_principal(
            principal,
            role=role.value if role else now["role"],
            team=None if no_team else team or now["team"],
            acts_for=[] if acts_for_nobody else acts_for or now["acts_for"],
            etag=now["etag"],
        )
    _print(dict(changed), format_)


@app.command("erase-name")
def erase_name(
    principal: PrincipalId,
    store: StoreUrl = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Erase the name of a principal. No other principal can have that name later."""
    with key_admin(store, url, key) as admin:
        admin.erase_name(principal)
    console().print(f"erased the name of {principal}")


def _print(principal: Mapping[str, Any], format_: Format) -> None:
    if format_ is Format.json:
        print_json(principal)
        return
    out = console()
    for field in ("id", "name", "role", "team"):
        if principal.get(field):
            out.print(f"{field:<10} {principal[field]}", soft_wrap=True)
    if principal.get("acts_for"):
        out.print(f"acts for   {', '.join(principal['acts_for'])}", soft_wrap=True)
    out.print(f"created    {moment(principal['created'])}")
    out.print(f"keys       {principal['keys']} in use")
