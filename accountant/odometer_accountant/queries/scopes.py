"""Of a scope that reads zero because nothing was ever charged to it: that it does, and what was meant."""

from typing import Final

from odometer_accountant.ledger.blobs import scope_blob
from odometer_accountant.ledger.state import State
from odometer_accountant.requests.suggestions import instead
from odometer_accountant.scopes import split
from odometer_accountant.stores import Store

_COMPARED: Final = 1000
"""Names of scopes that are compared with one that is not there."""
_SHOWN: Final = 5
"""So many are named where none is near."""


def never_charged(store: Store, state: State, scope: str) -> str | None:
    """What is to be said of `scope`, in its stream's state; None where it was charged or is declared.

    Declared are partitions, and scopes that a budget names. Whoever has not been charged yet has lost
    nothing, so that this is no error: but a name with a fault in it has lost nothing either.
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
    """The nearest of those that were charged, by what it is called too."""
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
