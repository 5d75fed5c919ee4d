"""`odometer key`: make, list, rotate and revoke API keys, through the service or straight in its store."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from odometer_client.connection import DEFAULT_URL
from odometer_client.wording import moment
from privacy_odometer.cli import parsing
from privacy_odometer.cli.output import Format, Key, Output, Url, connected, out, print_json
from privacy_odometer.cli.principals import (
    BY,
    ActsFor,
    ExpiresIn,
    Name,
    RoleArgument,
    StoreUrl,
    Team,
    in_store,
    plain_name,
    print_table,
    ring_of,
    through,
    without,
)

app = typer.Typer(
    help="Make, list, rotate and revoke API keys.",
    no_args_is_help=True,
)
KeyId = Annotated[
    str,
    typer.Argument(parser=parsing.identity, metavar="ID", help="The key's id, k_…, not its token."),
]


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
    """Make an API key of a new principal. Its token is shown now and never again.

    One more key of a principal that there is: `odometer key add`. With --store it works straight in the
    ledger, without a key.
    """
    made: Mapping[str, Any]
    wanted = without(role=role.value, name=name, team=team, acts_for=acts_for, expires_in_s=expires_in_s)
    if target := in_store(store, url):
        from odometer_accountant.service.principals import NewKey

        with ring_of(target, NewKey, wanted) as (ring, form, by):
            identity, token = ring.create(
                form.role, form.name, by, form.team, form.acts_for, form.expires_in_s
            )
            made = _made(ring, identity.key, token)
    else:
        with connected(url, key) as client:
            made = client.create_key(
                role.value, name, team=team, acts_for=acts_for or (), expires_in_s=expires_in_s
            )
    show_made(made, format_)


@app.command()
def add(
    principal: Annotated[
        str, typer.Argument(parser=parsing.identity, metavar="PRINCIPAL", help="Its id, p_….")
    ],
    expires_in_s: ExpiresIn = None,
    store: StoreUrl = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Make one more API key of a principal, which keeps its odometer."""
    made: Mapping[str, Any]
    if target := in_store(store, url):
        from odometer_accountant.service.principals import MoreKey

        with ring_of(target, MoreKey, without(expires_in_s=expires_in_s)) as (ring, form, by):
            identity, token = ring.add(principal, by, form.expires_in_s)
            made = _made(ring, identity.key, token)
    else:
        with connected(url, key) as client:
            made = client.add_key(principal, expires_in_s=expires_in_s)
    show_made(made, format_)


@app.command("list")
def list_(
    store: StoreUrl = None, url: Url = DEFAULT_URL, key: Key = None, format_: Output = Format.text
) -> None:
    """List the API keys, without their tokens."""
    found = through(store, url, key, lambda ring: ring.keys(), lambda client: [*map(dict, client.keys())])
    if format_ is Format.json:
        print_json(found)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("id", "name", "principal", "role", "team", "created", "expires", "last rotation", "state"):
        table.add_column(title, no_wrap=True)
    table.add_column("acts for")
    for item in found:
        table.add_row(
            item["id"],
            plain_name(item),
            item["principal"],
            item["role"],
            item.get("team") or "",
            *(moment(item[field]) if item.get(field) else "" for field in ("created", "expires", "rotated")),
            state_of(item),
            ", ".join(item.get("acts_for") or ()),
        )
    print_table(table, found)


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
            help="How long the old key is still taken, as 7d, 1h or seconds: a day unless said, 0 for no "
            "longer.",
            show_default=False,
        ),
    ] = None,
    expires_in_s: ExpiresIn = None,
    store: StoreUrl = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Make a key in place of another of the same principal. The old one is taken a while longer."""
    made: Mapping[str, Any]
    if target := in_store(store, url):
        from odometer_accountant.service.principals import Rotation

        wanted = without(overlap_s=overlap_s, expires_in_s=expires_in_s)
        with ring_of(target, Rotation, wanted) as (ring, form, by):
            identity, token = ring.rotate(key_id, by, form.overlap_s, form.expires_in_s)
            made = _made(ring, identity.key, token)
    else:
        with connected(url, key) as client:
            made = client.rotate_key(key_id, overlap_s=overlap_s, expires_in_s=expires_in_s)
    show_made(made, format_)


@app.command()
def revoke(
    key_id: KeyId,
    store: StoreUrl = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Make an API key useless, for good. Its principal stays, with what it spent."""
    through(store, url, key, lambda ring: ring.revoke(key_id, BY), lambda client: client.revoke_key(key_id))
    out.print(f"revoked {key_id}")


@app.command()
def recover(
    store: Annotated[
        str,
        typer.Option(
            "--store",
            metavar="URL",
            help="The ledger itself: sqlite:///path/to/ledger.sqlite, redis://host.",
            show_default=False,
        ),
    ],
    principal: Annotated[
        str | None,
        typer.Option(
            parser=parsing.identity,
            metavar="ID",
            help="An admin, p_…, who gets one more key; a new one unless said.",
            show_default=False,
        ),
    ] = None,
    format_: Output = Format.text,
) -> None:
    """Make an admin key straight in the ledger when all admin keys are lost. An entry says so.

    Whoever may write the ledger can do this: no key is asked for. A running service takes the key at once.
    """
    from odometer_accountant.service.principals import MoreKey

    with ring_of(store, MoreKey, {}) as (ring, _, _by):
        identity, token = ring.recover(principal)
        made = _made(ring, identity.key, token)
    show_made(made, format_)


def show_made(made: Mapping[str, Any], format_: Format) -> None:
    """Print a new key, this once with its token."""
    if format_ is Format.json:
        print_json(made)
        return
    for field in ("id", "role", "principal", "name", "team", "replaces"):
        if made.get(field):
            out.print(f"{field:<10} {made[field]}")
    if made.get("expires"):
        out.print(f"expires    {moment(made['expires'])}")
    if made.get("acts_for"):
        out.print(f"acts for   {', '.join(made['acts_for'])}", soft_wrap=True)
    out.print(f"key (shown once): {made['token']}", soft_wrap=True)


def state_of(key: Mapping[str, Any]) -> Text:
    """Whether a key is taken, and what became of it."""
    if key.get("revoked"):
        return Text("revoked", "red")
    if key.get("expired"):
        return Text("expired", "red")
    return Text("rotated" if key.get("replaced_by") else "in use")


def _made(ring: Any, key: str, token: str) -> dict[str, Any]:
    from odometer_accountant.service.principals import made

    return made(ring.key(key), token)
