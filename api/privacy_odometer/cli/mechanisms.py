"""`odometer mechanisms`: the mechanisms that can be charged."""

from typing import Annotated

import typer

from odometer_client.connection import DEFAULT_URL
from privacy_odometer.cli import errors, parsing
from privacy_odometer.cli.connection import connected
from privacy_odometer.cli.errors import end
from privacy_odometer.cli.options import Format, Key, Output, Url
from privacy_odometer.cli.output import console, print_indented, print_json


def mechanisms(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="[KIND]", help="Show one mechanism, with its parameters.", show_default=False),
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """List the mechanisms that can be charged; for one kind also its parameters, formula and source.

    With --url memory:// no service is needed.
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
        console().print(item["kind"], style="bold")
        print_indented(f"{item['summary']}")
        if kind is not None:
            for name, field in item["schema"]["properties"].items():
                if name != "kind":
                    print_indented(f"{name}: {' '.join(field.get('description', '').split())}")
            print_indented(f"valid under {', '.join(item['adjacency'])}")
            print_indented(f"loss: {item['formula']}")
            print_indented(f"source: {item['source']}")
            if item.get("avoid"):
                print_indented(f"not for: {item['avoid']}")
        for example in item["examples"]:
            console().print(
                f"  odometer charge DATASET {parsing.typed(example)}", soft_wrap=True, style="dim"
            )
