"""`odometer sessions`, `close-session`: interactive mechanisms that take answers. Runners open them."""

from typing import TYPE_CHECKING, Annotated

import typer

from odometer_client.connection import DEFAULT_URL
from odometer_client.wording import mechanism_words, moment
from privacy_odometer.cli.options import Dataset
from privacy_odometer.cli.output import Format, Key, Output, Url, connected, out, print_json

if TYPE_CHECKING:
    from odometer_client import Session


def sessions(
    dataset: Dataset, url: Url = DEFAULT_URL, key: Key = None, format_: Output = Format.text
) -> None:
    """List the open sessions. What is paid of one stays paid."""
    with connected(url, key) as client:
        found = client.sessions(dataset)
    if format_ is Format.json:
        print_json(found)
        return
    for item in found:
        group = f", group {item['group']['name']}" if item["group"] else ""
        out.print(f"{item.id:>6}  since {moment(item['time'])}  {mechanism_words(item['session'])}{group}")
        so_far = _so_far(item)
        out.print(f"        by {item['by'] or item['principal']}, {so_far}", style="dim")
    if not found:
        out.print("No session is open.")


def close_session(
    dataset: Dataset,
    session_id: Annotated[
        str,
        typer.Argument(metavar="SESSION", help="Its id, with its hash: 12.0a1b2c3d.", show_default=False),
    ],
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Close a session: it takes no more answers. By its opener or an admin; nothing comes back.

    odometer close-session adult 2.1f0c9a3e
    """
    with connected(url, key) as client:
        closed = client.close_session(dataset, session_id)
    if format_ is Format.json:
        print_json(closed)
        return
    out.print(
        f"closed  {dataset}, session {session_id}, {closed['session']['above']} above its threshold in all"
    )


def _so_far(item: "Session") -> str:
    """How an open session goes, in the words of its kind."""
    if item["session"]["kind"] == "confident_gnmax":
        return f"query {item.run}, {item.above} answered so far, {item.above_left} more may be"
    return f"run {item.run}, {item.above} above so far, {item.above_left} more may come"
