"""`odometer sessions`, `close-session`: the open sessions of interactive mechanisms.

The client's runners open sessions; the command line does not.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from odometer_client.connection import DEFAULT_URL
from odometer_client.wording import mechanism_words, moment
from privacy_odometer.cli.connection import connected
from privacy_odometer.cli.options import Dataset, Format, Key, Output, Url
from privacy_odometer.cli.output import console, print_json

if TYPE_CHECKING:
    from odometer_client import Session


def sessions(
    dataset: Dataset, url: Url = DEFAULT_URL, key: Key = None, format_: Output = Format.text
) -> None:
    """List the open sessions. What they have spent stays spent."""
    with connected(url, key) as client:
        found = client.sessions(dataset)
    if format_ is Format.json:
        print_json(found)
        return
    for item in found:
        group = f", group {item['group']['name']}" if item["group"] else ""
        console().print(
            f"{item.id:>6}  since {moment(item['time'])}  {mechanism_words(item['session'])}{group}"
        )
        so_far = _so_far(item)
        console().print(f"        by {item['by'] or item['principal']}, {so_far}", style="dim")
    if not found:
        console().print("No session is open.")


def close_session(
    dataset: Dataset,
    session_id: Annotated[
        str,
        typer.Argument(
            metavar="SESSION", help="The session's id, with its hash: 12.0a1b2c3d.", show_default=False
        ),
    ],
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Close a session, so that it takes no more answers. Nothing is given back.

    The principal that opened it can close it, or an admin.

    odometer close-session adult 2.1f0c9a3e
    """
    with connected(url, key) as client:
        closed = client.close_session(dataset, session_id)
    if format_ is Format.json:
        print_json(closed)
        return
    console().print(
        f"closed  {dataset}, session {session_id}, {closed['session']['above']} above its threshold in all"
    )


def _so_far(item: "Session") -> str:
    """The progress of an open session."""
    if item["session"]["kind"] == "confident_gnmax":
        return f"query {item.run}, {item.above} answered so far, {item.above_left} more may be"
    return f"run {item.run}, {item.above} above so far, {item.above_left} more may come"
