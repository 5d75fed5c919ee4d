"""The part of the client that opens, changes and closes: datasets, budgets, keys (role admin)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from odometer_client.bodies import names, segment
from odometer_client.connection import Connection
from odometer_client.documents import Dataset, Document


class Administering(Connection):
    """What needs an admin's key. None of it is repeated by itself after a lost answer."""

    def create_dataset(
        self,
        name: str,
        *,
        unit: str,
        adjacency: str,
        delta: float,
        budgets: Sequence[Mapping[str, Any]] = (),
        **more: Any,
    ) -> Dataset:
        """Open a dataset's ledger. Names are never used twice.

        Args:
            name: 1 to 64 of a-z, 0-9, "-" and "_", the first a letter or digit.
            unit: what one unit of privacy is: "person", "record", "device", ...
            adjacency: "add_remove", "replace_one" or "zero_out".
            delta: the delta at which readings are given, 0 < delta < 1.
            budgets: budget documents, like
                {"name": "life", "kind": "approximate", "epsilon": 3, "delta": 1e-6}; further members:
                scope ("team/*", "unit/*", ...), window ("day", ...), reserved ({team: share}).
            more: further members of the document: composition ("by_partition", "by_unit"), partitions,
                shards, delta_add, workload, odometer_only.
        """
        body = {"name": name, "unit": unit, "adjacency": adjacency, "delta": delta, **more}
        if budgets:
            body["budgets"] = [dict(budget) for budget in _budgets(budgets)]
        return Dataset(self._run("create_dataset", "POST", "/v1/datasets", "never", body=body).document)

    def add_budget(self, dataset: str, budget: Mapping[str, Any]) -> Document:
        """Add a budget to a dataset."""
        return Document(self._change("add_budget", dataset, "budgets", budget))

    def set_budget(self, dataset: str, name: str, budget: Mapping[str, Any], *, etag: str) -> Document:
        """Change a budget. `etag` is the budget's as you read it: the version you change."""
        path = f"/v1/datasets/{segment(dataset)}/budgets/{segment(name)}"
        done = self._run(
            "set_budget",
            "PUT",
            path,
            "never",
            arguments={"dataset": dataset, "name": name, "etag": etag},
            body=budget,
            headers={"If-Match": etag},
        )
        return Document(done.document)

    def add_partitions(self, dataset: str, partitions: Sequence[str]) -> Dataset:
        """Give a dataset that composes by partition further ones; charges on all count for them too."""
        body = {"partitions": names("partitions", partitions)}
        return Dataset(self._change("add_partitions", dataset, "partitions", body))

    def unfreeze(self, dataset: str, reason: str) -> Dataset:
        """Go on with a dataset whose ledger went back in time, without what was lost.

        `reason`, 1 to 500 characters, becomes an entry. What the lost entries spent is spent and not
        counted any more: restore a backup instead wherever there is one.
        """
        return Dataset(self._change("unfreeze", dataset, "unfreeze", {"reason": reason}))

    def close_dataset(self, dataset: str) -> Dataset:
        """Take no more charges, for ever."""
        return Dataset(self._change("close_dataset", dataset, "closure", {}))

    def create_key(
        self,
        role: str,
        name: str | None = None,
        *,
        team: str | None = None,
        acts_for: Sequence[str] = (),
    ) -> Document:
        """A new API key: "admin", "charger" or "reader". Its `token` is shown only here.

        Args:
            role: what it may do.
            name: whose it is: kept apart from the ledger's entries.
            team: the team whose odometer and budgets its charges count on.
            acts_for: principals on whose behalf it may charge, ["*"] for any.
        """
        body: dict[str, Any] = {"role": role}
        body |= {field: value for field, value in (("name", name), ("team", team)) if value is not None}
        if acts_for:
            body["acts_for"] = names("acts_for", acts_for)
        return Document(self._run("create_key", "POST", "/v1/keys", "never", body=body).document)

    def keys(self) -> Iterator[Document]:
        """The API keys, without their tokens."""
        return (Document(item) for item in self._pages("keys", "/v1/keys", {}))

    def revoke_key(self, key_id: str) -> None:
        """Make an API key useless at once."""
        self._run("revoke_key", "DELETE", f"/v1/keys/{segment(key_id)}", "never", arguments={"id": key_id})

    def _change(self, operation: str, dataset: str, what: str, body: Mapping[str, Any]) -> Any:
        path = f"/v1/datasets/{segment(dataset)}/{what}"
        arguments = {"dataset": dataset}
        return self._run(operation, "POST", path, "never", arguments=arguments, body=body).document


def _budgets(given: Any) -> Sequence[Mapping[str, Any]]:
    """The budgets of a new dataset. Raises TypeError for what is no list of documents."""
    if isinstance(given, Mapping):
        lone = "kind" in given
        raise TypeError(
            f"budgets is {'one budget' if lone else 'a mapping'}: give a list of them, "
            + ("[{…}]" if lone else '[{"name": "life", "kind": "approximate", …}]')
        )
    if isinstance(given, str) or not all(isinstance(budget, Mapping) for budget in given):
        raise TypeError('budgets: give a list of documents, [{"name": "life", "kind": "approximate", …}]')
    return list(given)
