"""Shards of a dataset: each is opened, listed in the dataset's ledger, and given the dataset's budgets."""

from typing import Final

from odometer_accountant.errors import DatasetClosed, StoreUnavailable, UnknownDataset
from odometer_accountant.ledger.decide import frozen_error, lost_shard
from odometer_accountant.ledger.shards import first_entry, list_entry, sync_entry
from odometer_accountant.ledger.state import State
from odometer_accountant.scopes import shard_number, shard_parent
from odometer_accountant.stores import EMPTY_HEAD, Write
from odometer_accountant.writer.batch import Draft
from odometer_accountant.writer.cache import StateCache

_ATTEMPTS: Final = 20
"""How often a shard is listed anew after another process changed the dataset first."""


def dataset_of(cache: StateCache, stream: str) -> State | None:
    """The dataset that a shard belongs to; None when the stream is a dataset itself.

    Raises UnknownDataset, and LedgerRolledBack when the dataset is frozen.
    """
    parent = shard_parent(stream)
    if parent is None:
        return None
    dataset = cache.current(parent)
    if dataset is None:
        raise UnknownDataset(
            f"there is no dataset '{parent}': create it first; a charge never creates a dataset"
        )
    if dataset.frozen is not None:
        raise frozen_error(dataset)
    return dataset


def opened_shard(
    cache: StateCache, dataset: State, stream: str, state: State | None, now: str
) -> State | None:
    """The state of a shard that is about to be charged. Opens the shard and lists it where needed.

    Both happen before the first charge is admitted. So a listed shard that is missing was lost, and must
    not be opened anew. Raises LedgerRolledBack then, and DatasetClosed for a closed dataset.
    """
    shard = shard_number(stream)
    if state is not None and shard in dataset.opened:
        return state
    if dataset.closed:
        raise DatasetClosed(f"dataset {dataset.dataset.name} is closed: it takes no more charges")
    if state is None and shard in dataset.opened:
        raise lost_shard(dataset, shard)
    if state is None:
        first = first_entry(dataset, shard, now)
        # The result does not matter: a process that was faster has written the same.
        cache.store.append([Write(stream, EMPTY_HEAD, [first.entry], first.state.blobs())])
    _list_shard(cache, dataset.stream, shard, now)
    return cache.state(stream)


def _list_shard(cache: StateCache, name: str, shard: int, now: str) -> None:
    for _ in range(_ATTEMPTS):
        dataset = cache.current(name)
        if dataset is None or shard in dataset.opened:
            return
        after = list_entry(dataset, shard, now)
        write = Write(name, dataset.head, [after.entry], after.state.blobs(dataset))
        if cache.store.append([write]) == [True]:
            cache.keep(after.state)
            return
        cache.mark_stale(name)
    raise StoreUnavailable("too many concurrent writers: retry with the same idempotency key")


def sync_budgets(dataset: State, draft: Draft, now: str) -> None:
    """Record the dataset's budgets in the shard when they differ from the shard's own.

    A shard's ledger can be verified on its own, so the budgets that its charges are judged by must be in it.
    """
    state = draft.state
    if state is None or state.frozen is not None:
        return
    if (state.budgets, state.closed) != (dataset.budgets, dataset.closed):
        draft.add(sync_entry(state, dataset, now))
