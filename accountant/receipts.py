"""Receipts: what a charge returns. Written as JSON directly, since every charge pays for it."""

import json
from typing import Any

from accountant.commands import Prepared
from accountant.ledger import State
from accountant.odometer import loss_document


def fragment(prepared: Prepared) -> str:
    """The part of a receipt that the request alone decides, as JSON members."""
    charges = json.dumps(prepared.documents, separators=(",", ":"))
    loss = json.dumps(loss_document(prepared.loss), separators=(",", ":"))
    return f'"charges":{charges},"loss":{loss}'


def fragment_of(prepared: Prepared) -> str:
    """`fragment`, computed once per request."""
    known = prepared.__dict__.get("receipt_fragment")
    if known is None:
        known = prepared.__dict__["receipt_fragment"] = fragment(prepared)
    return str(known)


def left(state: State) -> list[dict[str, Any]]:
    """What is left per budget, in the coordinate that a receipt shows."""
    return [rule.left(state.spent) for rule in state.rules]


def receipt(
    state: State, sequence: int, digest: str, time: str, principal: str, fixed: str, *, replayed: bool
) -> bytes:
    """The JSON body. `fixed` is the request's `fragment`; `state` is the one after the charge (or, for a
    replay, the present one).
    """
    head = (
        f'{{"dataset":"{state.dataset.name}","sequence":{sequence},"hash":"{digest}","time":"{time}",'
        f'"principal":{json.dumps(principal)},"replayed":{"true" if replayed else "false"},{fixed},"left":['
    )
    return (head + ",".join(_left_json(item) for item in left(state)) + "]}").encode()


def _left_json(item: dict[str, Any]) -> str:
    order = f'"order":{item["order"]!r},' if "order" in item else ""
    spent = "null" if item["spent"] is None else repr(item["spent"])
    return (
        f'{{"budget":"{item["budget"]}","kind":"{item["kind"]}",{order}"limit":{item["limit"]!r},'
        f'"spent":{spent},"left":{item["left"]!r},"used":{item["used"]!r}}}'
    )
