"""Receipts: what a charge returns. Written as JSON directly, since every charge pays for it."""

import json
import math
from collections.abc import Iterator
from typing import Any

from odometer_accountant.budgets.base import Left
from odometer_accountant.ledger.active_budgets import ActiveBudget
from odometer_accountant.ledger.entries import timestamp
from odometer_accountant.ledger.prepared import PreparedCharge
from odometer_accountant.ledger.state import State
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.queries.reading import loss_document
from odometer_accountant.scopes import DATASET_SCOPE, EACH, AffectedScopes, split


def fragment(prepared: PreparedCharge) -> str:
    """The part of a receipt that the request alone decides, as JSON members."""
    charges = json.dumps(prepared.documents, separators=(",", ":"))
    loss = json.dumps(loss_document(prepared.loss), separators=(",", ":"))
    notes = f',"notes":{json.dumps(prepared.notes)}' if prepared.notes else ""
    return f'"charges":{charges},"loss":{loss}{notes}'


def fragment_of(prepared: PreparedCharge) -> str:
    """`fragment`, computed once per request."""
    known = prepared.__dict__.get("receipt_fragment")
    if known is None:
        known = prepared.__dict__["receipt_fragment"] = fragment(prepared)
    return str(known)


def left(
    state: State, affected: AffectedScopes, time: str, extra: Loss | None = None
) -> list[dict[str, Any]]:
    """The remainder of each affected budget, in its own parameter; `extra` counts as charged."""
    found = []
    for limit, scope, spent in _tightest(state, affected, time, extra):
        found.append(json.loads(_left_json(limit, scope, limit.filter.left_of_limit(spent), time)))
    return found


def left_of(state: State, scope: str, time: str) -> list[dict[str, Any]]:
    """The remainder of each budget of one scope (not the whole dataset), in the budget's parameter."""
    kind, name = split(scope)
    parted = kind == "partition"  # whose units have lost what the whole dataset has lost, too
    kinds, scopes = ((kind, "dataset"), (DATASET_SCOPE, scope)) if parted else ((kind,), (scope,))
    found = []
    for limit in state.limits:
        if limit.kind in kinds and limit.name in ("", EACH, name):
            left = limit.filter.left_of_limit(limit.count(state.totals, scopes, time))
            found.append(json.loads(_left_json(limit, scope, left, time)))
    return found


def receipt(
    state: State,
    entry: dict[str, Any],
    principal: str,
    fixed: str,
    affected: AffectedScopes,
    *,
    replayed: bool,
) -> bytes:
    """The JSON body. `fixed` is the request's `fragment`; `state` is the one after the charge (or, for a
    replay, the present one); `entry` has `sequence`, `hash`, `time` and what else the receipt says.
    """
    head = (
        f'{{"dataset":"{state.dataset.name}","sequence":{entry["sequence"]},"hash":"{entry["hash"]}",'
        f'"time":"{entry["time"]}","principal":{json.dumps(principal)},'
        f'"replayed":{"true" if replayed else "false"},'
    )
    if len(entry) > 3:
        more = {name: value for name, value in entry.items() if name not in ("sequence", "hash", "time")}
        head += json.dumps(more, separators=(",", ":"))[1:-1] + ","
    lines = [
        _left_json(limit, scope, limit.filter.left(spent), state.time)
        for limit, scope, spent in _tightest(state, affected, state.time, None)
    ]
    return (head + fixed + ',"left":[' + ",".join(lines) + "]}").encode()


def _tightest(
    state: State, affected: AffectedScopes, time: str, extra: Loss | None
) -> Iterator[tuple[ActiveBudget, str, Loss]]:
    """Each budget that is concerned, at the one of its scopes that has used most of it."""
    for limit in state.limits:
        counts = [
            (scopes[-1], limit.count(state.totals, scopes, time))
            for scopes in limit.concerned(state.composition, state.partitions, affected)
        ]
        if extra is not None:
            counts = [(scope, spent.plus(extra)) for scope, spent in counts]
        if len(counts) > 1:
            counts.sort(key=lambda pair: limit.filter.left(pair[1]).used, reverse=True)
        if counts:
            yield limit, *counts[0]


def _left_json(limit: ActiveBudget, scope: str, shown: Left, time: str) -> str:
    rule = limit.filter
    order = "" if shown.order is None else f'"order":{shown.order!r},'
    spent = "null" if shown.spent == math.inf else repr(shown.spent)
    window = ""
    if limit.window is not None and (ends := limit.renews(time)) is not None:
        window = f'"window":"{limit.window}","renews":"{timestamp(ends)}",'
    return (
        f'{{"budget":"{rule.name}","scope":"{scope}",{window}"kind":"{rule.kind}",{order}"limit":{shown.limit!r},'
        f'"spent":{spent},"left":{shown.left!r},"used":{shown.used!r}}}'
    )
