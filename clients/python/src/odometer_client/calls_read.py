"""The part of the client that looks and changes nothing."""

from collections.abc import Iterator
from typing import Any, Unpack

from odometer_client.bodies import About, Charges, charge_body
from odometer_client.connection import Connection
from odometer_client.documents import Check, Dataset, EventCharges, Odometer, Reply
from odometer_client.dp_events import event_document


class Reading(Connection):
    """Reads datasets, odometers and ledgers (role reader)."""

    def check(
        self,
        dataset: str,
        mechanism: Charges,
        count: int | None = None,
        **about: Unpack[About],
    ) -> Check:
        """Whether a charge would fit now, and what would fit instead. Charges nothing, promises nothing."""
        body = charge_body(mechanism, count, **about)
        return Check(self._run("check", {"dataset": dataset}, body=body).document)

    def odometer(self, dataset: str, delta: float | None = None, *, scope: str | None = None) -> Odometer:
        """The readings of a dataset, at `delta` (0 < delta < 1; left out: the dataset's own).

        `scope`: whose odometer: "partition/eu", "unit/u1", "principal/p_1", "team/ads", "group/sweep";
        left out, the dataset's as a whole. One that was never charged reads zero, and is not `known`.
        """
        return Odometer(self._get("odometer", {"dataset": dataset}, {"delta": delta, "scope": scope}))

    def scopes(self, dataset: str, kind: str, *, limit: int = 100) -> Iterator[Reply]:
        """Every "principal", "team", "group", "partition" or "mechanism" that was charged, by name.

        Each with what it has lost; read in pages of `limit` (1 to 1000).
        """
        found = self._pages("scopes", {"dataset": dataset}, limit=limit, kind=kind)
        return (Reply(item) for item in found)

    def datasets(self) -> Iterator[Dataset]:
        """Every dataset, page by page."""
        return (Dataset(item) for item in self._pages("datasets"))

    def dataset(self, name: str) -> Dataset:
        """One dataset with the state of its budgets."""
        return Dataset(self._get("dataset", {"dataset": name}))

    def ledger(self, name: str, after: int = 0, *, limit: int = 1000) -> Iterator[Reply]:
        """The entries after sequence number `after`, oldest first, read in pages of `limit` (1 to 1000)."""
        return (Reply(item) for item in self._pages("ledger", {"dataset": name}, after, limit))

    def lineage(self, dataset: str, entry: int) -> Reply:
        """What an entry comes of (`ancestors`, nearest first) and what was made of it (`descendants`).

        Each, and the `entry` itself, has `sequence`, `hash`, `type`, `time`, `principal`, `by`; `parent` and
        `description` of what was derived, `charges` of a release, else None.
        """
        names = {"dataset": dataset}
        found = dict(self._get("lineage", names, {"entry": entry}))
        while found["next"] is not None:
            more = self._get("lineage", names, {"entry": entry, "after": found["next"]})
            found["descendants"] = [*found["descendants"], *more["descendants"]]
            found["next"] = more["next"]
        return Reply(found)

    def history(self, dataset: str, points: int = 200) -> list[dict[str, Any]]:
        """The loss over the ledger, down-sampled by the service to at most `points`."""
        return list(self._get("history", {"dataset": dataset}, {"points": points})["points"])

    def spend(self, dataset: str) -> Reply:
        """What each principal and each kind of mechanism spent."""
        return Reply(self._get("spend", {"dataset": dataset}))

    def mechanisms(self) -> list[dict[str, Any]]:
        """What can be charged: kind, parameters, formula, source, where it is valid, examples."""
        return list(self._pages("mechanisms"))

    def convert(
        self,
        mechanism: Charges,
        count: int | None = None,
        *,
        delta: float | None = None,
        epsilon: float | None = None,
        adjacency: str | None = None,
    ) -> Reply:
        """What a plan would cost on no dataset at all: give `delta` to read epsilon, or the other way."""
        body = charge_body(mechanism, count, adjacency=adjacency)
        body |= {name: value for name, value in (("delta", delta), ("epsilon", epsilon)) if value is not None}
        return Reply(self._run("convert", body=body).document)

    def dp_event_charges(self, event: Any) -> EventCharges:
        """What an event of dp_accounting comes to, for `charge`, `hold` or `check`; [] for no loss.

        `event`: a live `DpEvent`, its named tuple, or its JSON. What the service does not know it refuses, by
        name and place in the tree (InvalidRequest). An event says nothing about adjacency. The list's `notes`
        say which parts lose nothing and so are not in it.
        """
        body = {"dp_event": event_document(event)}
        found = self._run("dp_events", body=body).document
        charges = ((item["mechanism"], item["count"]) for item in found["charges"])
        return EventCharges(charges, found.get("notes") or ())

    def me(self) -> Reply:
        """Who this client's key says you are: key, role, principal, team, whom it may act for."""
        return Reply(self._get("me"))
