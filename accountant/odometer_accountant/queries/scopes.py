"""Lists the scopes of a dataset, and hints for scopes that have no charges (probably typos)."""

from typing import Any, Final

from odometer_accountant.ledger.blobs import scope_blob
from odometer_accountant.ledger.snapshot import with_blobs
from odometer_accountant.ledger.state import State
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.queries import readings
from odometer_accountant.queries.advice import finite
from odometer_accountant.queries.reading import loss_document
from odometer_accountant.queries.readings import fixed_plan
from odometer_accountant.queries.receipts import left_of
from odometer_accountant.requests.suggestions import instead
from odometer_accountant.scopes import split
from odometer_accountant.stores import Store

_COMPARED: Final = 1000
"""Names of scopes that are compared with one that is not there."""
_SHOWN: Final = 5
"""So many are named where none is near."""


def never_charged(store: Store, state: State, scope: str) -> str | None:
    """A hint for a scope that was never charged; None if it was charged or is declared.

    Partitions, and scopes that a budget names, are declared. A scope without charges has lost nothing, so
    this is not an error; but a misspelt name has no charges either.
    """
    kind, name = split(scope)
    if kind == "partition" or any((limit.kind, limit.name) == (kind, name) for limit in state.limits):
        return None
    if store.load(state.stream, [scope_blob(scope)])[1]:
        return None
    said = f"nothing was ever charged to {scope}"
    if kind == "unit":
        return said  # units are not listed: their ids are asked for, one at a time
    return f"{said}: {_instead(store, state, kind, name)}"


def _instead(store: Store, state: State, kind: str, name: str) -> str:
    """The most similar scope that was charged; principals are also compared by their names."""
    dataset, prefix = state.dataset.name, scope_blob(f"{kind}/")
    names = [blob.removeprefix(prefix) for blob, _ in store.blobs(state.stream, prefix, "", _COMPARED)]
    notes = store.notes(names) if kind == "principal" else {}
    called = [one for one in names if one in notes and notes[one].text.casefold() == name.casefold()]
    if called:
        return f"{' and '.join(called)} {'are' if len(called) > 1 else 'is'} called that"
    if not names:
        return f"there is no charged {kind} in {dataset} yet"
    near = instead(name, names)
    if near.startswith("did you mean") or len(names) <= _SHOWN:
        return near
    return f"odometer scopes {dataset} --kind {kind} lists those that were"


_SCOPES_MAX: Final = 1000


def spend(store: Store, state: State) -> dict[str, Any]:
    """The totals of each principal and of each kind of mechanism, as plans of their own.

    At most 1000 of each, by name; `more` says whether there are others, which `scopes` has in pages.
    """
    delta = float(state.dataset.delta)
    principals, more_principals = _scopes(store, state, "principal/", delta)
    mechanisms, more_mechanisms = _scopes(store, state, "mechanism/", delta)
    return {
        "by_principal": [{"principal": name, "name": note, **numbers} for name, note, numbers in principals],
        "by_mechanism": [{"kind": name, **numbers} for name, _, numbers in mechanisms],
        "more": more_principals or more_mechanisms,
        "delta": delta,
        "holds": "Each alone, as a plan fixed in advance, for comparison: parts do not add up to the whole.",
    }


def _scopes(
    store: Store, state: State, kind: str, delta: float
) -> tuple[list[tuple[str, str | None, dict[str, Any]]], bool]:
    """The first of a kind, and whether there are more."""
    prefix = scope_blob(kind)
    blobs = store.blobs(state.dataset.name, prefix, "", _SCOPES_MAX + 1)
    found = []
    names = [name.removeprefix(prefix) for name, _ in blobs[:_SCOPES_MAX]]
    notes = store.notes(names) if kind == "principal/" else {}
    for name, (_, blob) in zip(names, blobs[:_SCOPES_MAX], strict=True):
        loss = Loss.decode(state.dataset.grid, blob.decode("ascii"))
        shown = loss_document(loss)
        epsilon = fixed_plan(loss, delta).value
        note = notes[name].text if name in notes else None
        found.append((name, note, {"epsilon": epsilon, "rho": shown["rho"], "delta": shown["delta"]}))
    return found, len(blobs) > _SCOPES_MAX


def scopes(store: Store, state: State, kind: str, after: str, limit: int, now: str) -> dict[str, Any] | None:
    """One page of the scopes of a kind that were ever charged, by name; None when the stream moved on.

    Each with the budget that it has used most of, and every budget that it has.
    """
    prefix = scope_blob(f"{kind}/")
    blobs = store.blobs(state.dataset.name, prefix, prefix + after if after else "", limit + 1)
    names = [name.removeprefix(scope_blob("")) for name, _ in blobs[:limit]]
    ready = with_blobs(store, state, state.blob_names(names))
    if ready is None:
        return None
    delta, time = float(state.dataset.delta), max(state.time, now)
    items = []
    for name in names:
        loss = ready.totals.of(name)
        if kind == "partition":
            loss = ready.spent.plus(loss)
        left = left_of(ready, name, time)
        reading = readings.stopped_now(state, loss)
        items.append(
            {
                "scope": name,
                "if_stopped_now": finite(reading),
                "delta": delta,
                "totals": loss_document(loss),
                "tightest": max(left, key=lambda one: one["used"], default=None),
                "budgets": len(left),
            }
        )
    last = blobs[limit - 1][0].removeprefix(prefix) if len(blobs) > limit else None
    return {"items": items, "next": last}
