"""`odometer mechanisms`: what can be charged."""

from typing import Annotated

import typer

from odometer_client.connection import DEFAULT_URL
from privacy_odometer.cli import errors, parsing
from privacy_odometer.cli.output import Format, Key, Output, Url, connected, end, indented, out, print_json


def mechanisms(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="[KIND]", help="One of them, with its parameters.", show_default=False),
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """List what can be charged; with a kind, its parameters, formula and source.

    Without a service: --url memory://
    """
    with connected(url, key) as client:
        found = client.mechanisms()
    if kind is not None:
        named = [item for item in found if item["kind"] == kind]
        if not named:
            from odometer_accountant.requests.suggestions import kind_instead

            kinds = [item["kind"] for item in found]
            end(f"there is no mechanism {kind!r}: {kind_instead(kind, kinds)}", errors.REFUSED)
        found = named
    if format_ is Format.json:
        print_json(found)
        return
    for item in found:
        out.print(item["kind"], style="bold")
        indented(f"{item['summary']}")
        if kind is not None:
            for name, field in item["schema"]["properties"].items():
                if name != "kind":
                    indented(f"{name}: {' '.join(field.get('description', '').split())}")
            indented(f"valid under {', '.join(item['adjacency'])}")
            indented(f"loss: {item['formula']}")
            indented(f"source: {item['source']}")
            if item.get("avoid"):
                indented(f"not for: {item['avoid']}")
        for example in item["examples"]:
            out.print(f"  odometer charge DATASET {parsing.typed(example)}", soft_wrap=True, style="dim")
