"""The part of the client that opens, changes and closes: datasets, budgets, principals, keys (role admin)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from odometer_client.bodies import names
from odometer_client.connection import Connection
from odometer_client.documents import Dataset, Reply


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
        return Dataset(self._run("create_dataset", body=body).document)

    def add_budget(self, dataset: str, budget: Mapping[str, Any]) -> Reply:
        """Add a budget to a dataset."""
        return Reply(self._run("add_budget", {"dataset": dataset}, body=budget).document)

    def set_budget(self, dataset: str, name: str, budget: Mapping[str, Any], *, etag: str) -> Reply:
        """Change a budget. `etag` is the budget's as you read it: the version you change."""
        names = {"dataset": dataset, "budget": name}
        return Reply(self._run("set_budget", names, body=budget, if_match=etag).document)

    def add_partitions(self, dataset: str, partitions: Sequence[str]) -> Dataset:
        """Give a dataset that composes by partition further ones; charges on all count for them too."""
        body = {"partitions": names("partitions", partitions)}
        return Dataset(self._run("add_partitions", {"dataset": dataset}, body=body).document)

    def unfreeze(self, dataset: str, reason: str) -> Dataset:
        """Go on with a dataset whose ledger went back in time, without what was lost.

        `reason`, 1 to 500 characters, becomes an entry. What the lost entries spent is spent and not
        counted any more: restore a backup instead wherever there is one.
        """
        return Dataset(self._run("unfreeze", {"dataset": dataset}, body={"reason": reason}).document)

    def close_dataset(self, dataset: str) -> Dataset:
        """Take no more charges, for ever."""
        return Dataset(self._run("close_dataset", {"dataset": dataset}, body={}).document)

    def create_key(
        self,
        role: str,
        name: str | None = None,
        *,
        team: str | None = None,
        acts_for: Sequence[str] = (),
        expires_in_s: int | None = None,
    ) -> Reply:
        """A new API key of a new principal: "admin", "charger" or "reader". Its `token` is shown only here.

        Args:
            role: what it may do.
            name: whose it is, for good: kept apart from the ledger's entries. Nobody else can be called that;
                `NameTaken` says whose name it is: `add_key` makes one more key of that principal.
            team: the team whose odometer and budgets its charges count on.
            acts_for: principals on whose behalf it may charge, ["*"] for any.
            expires_in_s: seconds that it is taken, at most ten years; None: until it is revoked.
        """
        body = _may(role, name, team, acts_for) | _given(expires_in_s=expires_in_s)
        return Reply(self._run("create_key", body=body).document)

    def add_key(self, principal: str, *, expires_in_s: int | None = None) -> Reply:
        """One more API key of a principal, which keeps its odometer. Its `token` is shown only here."""
        body = _given(expires_in_s=expires_in_s)
        return Reply(self._run("add_key", {"principal": principal}, body=body).document)

    def rotate_key(
        self, key_id: str, *, overlap_s: int | None = None, expires_in_s: int | None = None
    ) -> Reply:
        """A key in place of another of the same principal; its `token` is shown only here.

        Args:
            key_id: the old key's id, k_….
            overlap_s: seconds that the old key is still taken; None: a day.
            expires_in_s: seconds that the new one is taken; None: until it is revoked.
        """
        body = _given(overlap_s=overlap_s, expires_in_s=expires_in_s)
        return Reply(self._run("rotate_key", {"key": key_id}, body=body).document)

    def keys(self, principal: str | None = None) -> Iterator[Reply]:
        """The API keys, or those of one principal, without their tokens."""
        if principal is None:
            return (Reply(item) for item in self._pages("keys"))
        return (Reply(item) for item in self._pages("principal_keys", {"principal": principal}))

    def revoke_key(self, key_id: str) -> None:
        """Make an API key useless at once. Its principal stays, with what it spent."""
        self._run("revoke_key", {"key": key_id})

    def create_principal(
        self,
        role: str,
        name: str | None = None,
        *,
        team: str | None = None,
        acts_for: Sequence[str] = (),
    ) -> Reply:
        """A principal, who has no key yet. The arguments are those of `create_key`."""
        body = _may(role, name, team, acts_for)
        return Reply(self._run("create_principal", body=body).document)

    def principals(self) -> Iterator[Reply]:
        """The principals, the oldest first."""
        return (Reply(item) for item in self._pages("principals"))

    def principal(self, principal: str) -> Reply:
        """One of them, by its id."""
        return Reply(self._get("principal", {"principal": principal}))

    def set_principal(
        self, principal: str, *, role: str, team: str | None, acts_for: Sequence[str], etag: str
    ) -> Reply:
        """Change what a principal may do and its team, from now on: what it was charged stays where it is.

        `etag` is the principal's as you read it: the version you change.
        """
        body = {"role": role, "team": team, "acts_for": names("acts_for", acts_for) if acts_for else []}
        done = self._run("set_principal", {"principal": principal}, body=body, if_match=etag)
        return Reply(done.document)

    def erase_name(self, principal: str) -> None:
        """Erase what a principal is called. Nobody else will be called that."""
        self._run("erase_name", {"principal": principal})


def _given(**fields: Any) -> dict[str, Any]:
    """A body of what is not None."""
    return {name: value for name, value in fields.items() if value is not None}


def _may(role: str, name: str | None, team: str | None, acts_for: Sequence[str]) -> dict[str, Any]:
    """The body of what a principal may do."""
    more = {"acts_for": names("acts_for", acts_for)} if acts_for else {}
    return {"role": role, **_given(name=name, team=team), **more}


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
