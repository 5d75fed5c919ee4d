"""Receipts: what a charge returns. Written as JSON directly, since every charge pays for it."""

import json
import math
from typing import Any

from accountant.commands import Prepared
from accountant.ledger import State
from accountant.odometer import loss_document
from accountant.rules import Left, Rule


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
    """What is left per budget, as a document, in the budget's own parameter."""
    return [json.loads(_left_json(rule, rule.left_of_limit(state.spent))) for rule in state.rules]


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
    spent = state.spent
    return (head + ",".join([_left_json(rule, rule.left(spent)) for rule in state.rules]) + "]}").encode()


def _left_json(rule: Rule, shown: Left) -> str:
    order = "" if shown.order is None else f'"order":{shown.order!r},'
    spent = "null" if shown.spent == math.inf else repr(shown.spent)
    return (
        f'{{"budget":"{rule.name}","kind":"{rule.kind}",{order}"limit":{shown.limit!r},'
        f'"spent":{spent},"left":{shown.left!r},"used":{shown.used!r}}}'
    )
