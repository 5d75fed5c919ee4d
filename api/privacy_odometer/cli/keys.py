"""`odometer key`: make, list, rotate, revoke and recover API keys."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.text import Text

from odometer_client.connection import DEFAULT_URL
from odometer_client.wording import moment
from privacy_odometer.cli import parsing
from privacy_odometer.cli.key_admin import key_admin, ledger_keys
from privacy_odometer.cli.options import (
    ActsFor,
    ExpiresIn,
    Format,
    Key,
    KeyId,
    Name,
    Output,
    RoleArgument,
    StoreUrl,
    Team,
    Url,
)
from privacy_odometer.cli.output import console, print_json
from privacy_odometer.cli.tables import print_whole, shown_name, table_of

app = typer.Typer(help="Make, list, rotate and revoke API keys.", no_args_is_help=True)


@app.command()
def create(
    role: RoleArgument,
    name: Name = None,
    team: Team = None,
    acts_for: ActsFor = None,
    expires_in_s: ExpiresIn = None,
    store: StoreUrl = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Make an API key for a new principal. Its token is shown only now.

    For another key of an existing principal use `odometer key add`.
    """
    with key_admin(store, url, key) as admin:
        made = admin.create_key(
            role.value, name, team=team, acts_for=acts_for or (), expires_in_s=expires_in_s
        )
    _print_made(made, format_)


@app.command()
def add(
    principal: Annotated[
        str, typer.Argument(parser=parsing.identity, metavar="PRINCIPAL", help="The principal's id, p_….")
    ],
    expires_in_s: ExpiresIn = None,
    store: StoreUrl = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Make another API key for a principal. Its odometer stays the same."""
    with key_admin(store, url, key) as admin:
        made = admin.add_key(principal, expires_in_s=expires_in_s)
    _print_made(made, format_)


@app.command("list")
def list_(
    store: StoreUrl = None, url: Url = DEFAULT_URL, key: Key = None, format_: Output = Format.text
) -> None:
    """List the API keys, without their tokens."""
    with key_admin(store, url, key) as admin:
        keys = [*map(dict, admin.keys())]
    if format_ is Format.json:
        print_json(keys)
        return
    titles = ("id", "name", "principal", "role", "team", "created", "expires", "last rotation", "state")
    table = table_of(*titles, last="acts for")
    for item in keys:
        table.add_row(
            item["id"],
            shown_name(item),
            item["principal"],
            item["role"],
            item.get("team") or "",
            *(moment(item[field]) if item.get(field) else "" for field in ("created", "expires", "rotated")),
            _state(item),
            ", ".join(item.get("acts_for") or ()),
        )
    print_whole(table)


@app.command()
def rotate(
    key_id: KeyId,
    overlap_s: Annotated[
        int | None,
        typer.Option(
            "--overlap",
            "--overlap-s",
            parser=parsing.overlap_s,
            metavar="TIME",
            help="How long the old key stays valid, as 7d, 1h or seconds; 0 ends it at once. Default: a day.",
            show_default=False,
        ),
    ] = None,
    expires_in_s: ExpiresIn = None,
    store: StoreUrl = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Replace a key by a new one of the same principal. The old key stays valid for a while."""
    with key_admin(store, url, key) as admin:
        made = admin.rotate_key(key_id, overlap_s=overlap_s, expires_in_s=expires_in_s)
    _print_made(made, format_)


@app.command()
def revoke(
    key_id: KeyId,
    store: StoreUrl = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Revoke an API key at once and for good. Its principal stays, with what it has spent."""
    with key_admin(store, url, key) as admin:
        keys = {item["id"]: item for item in map(dict, admin.keys())}
        revoked = bool(keys.get(key_id, {}).get("revoked"))
        if not revoked:
            admin.revoke_key(key_id)
    if revoked:
        console().print(f"{key_id} was revoked before; nothing changed")
    else:
        console().print(f"revoked {key_id}")


@app.command()
def recover(
    store: Annotated[
        str,
        typer.Option(
            "--store",
            metavar="URL",
            help="The ledger: sqlite:///path/to/ledger.sqlite, redis://host.",
            show_default=False,
        ),
    ],
    principal: Annotated[
        str | None,
        typer.Option(
            parser=parsing.identity,
            metavar="ID",
            help="An admin, p_…, who gets another key. Default: a new admin.",
            show_default=False,
        ),
    ] = None,
    format_: Output = Format.text,
) -> None:
    """Make an admin key directly in the ledger, if all admin keys are lost. An entry records it.

    It needs no key: whoever may write the ledger can do it. A running service accepts the new key at once.
    """
    with ledger_keys(store) as keys:
        made = keys.recover_key(principal)
    _print_made(made, format_)


def _print_made(made: Mapping[str, Any], format_: Format) -> None:
    """Print a new key with its token, which is shown only once."""
    if format_ is Format.json:
        print_json(made)
        return
    out = console()
    for field in ("id", "role", "principal", "name", "team", "replaces"):
        if made.get(field):
            out.print(f"{field:<10} {made[field]}")
    if made.get("expires"):
        out.print(f"expires    {moment(made['expires'])}")
    if made.get("acts_for"):
        out.print(f"acts for   {', '.join(made['acts_for'])}", soft_wrap=True)
    out.print(f"key (shown once): {made['token']}", soft_wrap=True)


def _state(key: Mapping[str, Any]) -> Text:
    """The state of a key: in use, rotated, expired or revoked."""
    if key.get("revoked"):
        return Text("revoked", "red")
    if key.get("expired"):
        return Text("expired", "red")
    return Text("rotated" if key.get("replaced_by") else "in use")
