"""The synchronous client: one method per thing the service does."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Unpack

from odometer_client.base import OdometerError, OutcomeUnknown, PartlyCharged, UnexpectedAnswer
from odometer_client.bodies import (
    About,
    AnyMechanism,
    Apart,
    Charges,
    Under,
    about_body,
    charge_body,
)
from odometer_client.calls import Done
from odometer_client.calls_admin import Administering
from odometer_client.calls_read import Reading
from odometer_client.documents import Derived, Receipt, Reply
from odometer_client.holds import Hold, OpenHold, Settlement, sanitised_body
from odometer_client.keys import new_key
from odometer_client.mechanisms import RenyiCurve
from odometer_client.sessions import Session, UnsureOpenings
from odometer_client.shards import KEY_MAX, parts
from odometer_client.sweeps import Sweep

__all__ = ["AnyMechanism", "Charges", "Client"]


class Client(Reading, Administering):
    """A client of one service, or of an embedded ledger. Thread-safe: one is enough for a process.

    Args:
        url: `http(s)://host:port` of a service; `sqlite:///path`, `redis://host:port` (also rediss,
            redis+sentinel, redis+cluster) or `memory://` for a ledger without a server, where the package
            `privacy-odometer` is installed.
        key: API key of the service; an embedded ledger takes none.
        timeout_s: longest wait, in seconds, for each phase (connect, write, read) of one try.
        attempts: most tries of one call, 1 to 100, all with the same idempotency key.

    Every method raises the classes of `odometer_client.errors`. Whatever `charge` or `hold` raises: do not
    release.
    """

    def charge(
        self,
        dataset: str,
        mechanism: Charges,
        count: int | None = None,
        *,
        key: str | None = None,
        **about: Unpack[About],
    ) -> Receipt:
        """Record that `mechanism` is about to run `count` times (default 1); release only after it returns.

        Args:
            dataset: name of the dataset.
            mechanism: what runs, or a list of (mechanism, count): all of it is charged or none.
            count: 1 to 1,000,000,000; only with a single mechanism.
            key: idempotency key, 1 to 128 printable ASCII characters. Leave it out unless you ask again
                for the very same work after `OutcomeUnknown`.
            about: adjacency, "add_remove", "replace_one" or "zero_out" as the mechanism's analysis has it
                (refused when the dataset's differs); partitions, the ones that are read, or "all"; units,
                1 to 1000 of one shard (`charge_units` takes any); group, (name, runs) of runs that belong
                together, where every count is that of one run; principal, on whose behalf.

        Raises: BudgetExceeded (with `refusals` and `would_fit`), OutcomeUnknown, and every other error.
        """
        key = new_key() if key is None else key
        body = charge_body(mechanism, count, **about)
        done = self._run("charge", {"dataset": dataset}, body=body, key=key)
        return Receipt(_receipt(done, dataset, key), retried=done.retried)

    def charge_event(
        self,
        dataset: str,
        event: Any,
        *,
        adjacency: str,
        key: str | None = None,
        **about: Unpack[Apart],
    ) -> Receipt:
        """Charge a whole plan that is written as a `DpEvent` of dp_accounting, before its first step.

        Args:
            dataset: name of the dataset.
            event: a live `DpEvent`, its named tuple, or its JSON.
            adjacency: under which the event's numbers hold, since an event does not say: its noise is over
                the sensitivity under that ("replace_one": 2C for a clip norm C). Refused if the dataset's
                is another.
            key, about: as for `charge`.

        Raises: InvalidRequest for an event that is not known, or whose cost is not; ValueError for one
        without a loss; and what `charge` raises.
        """
        charges = self.dp_event_charges(event)
        if not charges:
            raise ValueError("\n".join(charges.notes))
        return self.charge(dataset, charges, key=key, adjacency=adjacency, **about)

    def charge_units(
        self,
        dataset: str,
        mechanism: Charges,
        count: int | None,
        units: Sequence[str],
        *,
        key: str | None = None,
        **under: Unpack[Under],
    ) -> list[Receipt]:
        """Charge any number of units of a dataset that composes by unit: one charge for each shard.

        `odometer_client.shards` says which shard keeps a unit. A shard's charge is all or nothing; there is
        no such thing across shards. Where one fails after others were charged this raises `PartlyCharged`:
        call again with its `key` and the same units, and nothing is charged twice. After a refusal, units
        may be left out of the shard that refused, under the same key.

        `key`: as for `charge`, at most 112 characters.

        Raises: PartlyCharged; and, while nothing was charged, what `charge` raises.
        """
        key = new_key() if key is None else key
        if len(key) > KEY_MAX:
            raise ValueError(f"key has {len(key)} characters: at most {KEY_MAX}, each shard's adds its own")
        if not units:
            raise ValueError("units: there is none")
        found = self.dataset(dataset)
        if not found["shards"]:
            raise ValueError(f"dataset {dataset} composes {found['composition']}, not by_unit: use charge")
        receipts: list[Receipt] = []
        charged: list[str] = []
        for suffix, names in parts(units, found["shards"]):
            try:
                receipt = self.charge(dataset, mechanism, count, key=f"{key}{suffix}", units=names, **under)
            except OdometerError as error:
                if not receipts and not isinstance(error, OutcomeUnknown):
                    raise
                raise PartlyCharged(
                    f"{len(charged)} of {len(units)} units of {dataset} are charged for certain, then: "
                    f"{error} To go on: the same units with key {key!r}.",
                    key,
                    receipts,
                    charged,
                ) from error
            receipts.append(receipt)
            charged += names
        return receipts

    def hold(
        self,
        dataset: str,
        mechanism: Charges,
        count: int | None = None,
        *,
        expires_in_s: int,
        key: str | None = None,
        **about: Unpack[About],
    ) -> Hold:
        """Charge ahead of the work: up to so much may now be released, and `Hold.settle` says what was.

        It counts as spent from now on, and for good unless it is settled within `expires_in_s` seconds (1
        to 31,622,400). The rest is as for `charge`.
        """
        key = new_key() if key is None else key
        body = charge_body(mechanism, count, **about)
        done = self._run("hold", {"dataset": dataset}, body=body | {"expires_in_s": expires_in_s}, key=key)
        document = _receipt(done, dataset, key)
        made = document.get("hold")
        if not (isinstance(made, Mapping) and made.get("id") and made.get("expires")):
            raise _no_receipt(dataset, key)
        return Hold(document, self, retried=done.retried)

    def settle(self, dataset: str, hold_id: str, used: int | Sequence[int]) -> Settlement:
        """Charge a hold for the releases that went out, and give back the rest. Once; see `Hold.settle`."""
        body = {"used": list(used) if isinstance(used, Sequence) else used}
        return Settlement(self._run("settle", {"dataset": dataset, "hold": hold_id}, body=body).document)

    def settle_sanitised(
        self,
        dataset: str,
        hold_id: str,
        used: Sequence[int],
        curves: Sequence[RenyiCurve | None],
        failure_probability: float,
    ) -> Settlement:
        """Settle a hold of PATE queries at a sanitised figure. Once; see `Hold.settle_sanitised`."""
        body = {"used": list(used), "sanitised": sanitised_body(curves, failure_probability)}
        return Settlement(self._run("settle", {"dataset": dataset, "hold": hold_id}, body=body).document)

    def holds(self, dataset: str) -> list[OpenHold]:
        """The holds that can still be settled, oldest first. They are part of what is spent."""
        return [OpenHold(item, self, dataset) for item in self._pages("holds", {"dataset": dataset})]

    @cached_property
    def _unsure_openings(self) -> UnsureOpenings:
        return UnsureOpenings()

    def open_session(
        self,
        dataset: str,
        session: Mapping[str, Any],
        *,
        key: str | None = None,
        group: str | None = None,
        **under: Unpack[Under],
    ) -> Session:
        """Open an interactive mechanism and pay its first step; `Session.answer` pays the others.

            client.open_session("d", {"kind": "sparse_vector", "epsilon_threshold": 0.1,
                                      "epsilon_answers": 0.2, "max_above": 3})

        Args:
            session: its kind and parameters: "sparse_vector" or "confident_gnmax".
            key: idempotency key; leave it out unless you ask again, with the same client, after
                `OutcomeUnknown`. Under a key of your own making an old session is read and closed, and not
                answered: its `answer` raises NotTheRunner, since another process may have opened it.
            group: what the session belongs to: the group's odometer has it, too.

        Raises what `charge` raises, and TooManySessions.
        """
        ours = key is None or self._unsure_openings.take(dataset, key)
        key = new_key() if key is None else key
        body = {"session": dict(session), **about_body(group=(group, 1) if group else None, **under)}
        try:
            done = self._run("open_session", {"dataset": dataset}, body=body, key=key)
            document = done.document if isinstance(done.document, Mapping) else {}
            if not isinstance(document.get("session"), Mapping) or not document["session"].get("id"):
                raise _no_receipt(dataset, key)
            paid = _receipt(Done(document.get("receipt"), done.retried), dataset, key)
        except OdometerError:
            if ours:
                self._unsure_openings.add(dataset, key)
            raise
        receipt = Receipt(paid, retried=done.retried)
        return Session(document["session"], self, receipt, runner=ours or not receipt.replayed)

    def answer_session(self, dataset: str, session_id: str, *, above: bool, run: int, key: str) -> Reply:
        """Charge what follows a public answer of a session: see `Session.answer`, which makes the key."""
        names = {"dataset": dataset, "session": session_id}
        done = self._run("answer_session", names, body={"above": above, "run": run}, key=key)
        if not isinstance(done.document, Mapping) or not isinstance(done.document.get("session"), Mapping):
            raise _no_receipt(dataset, key)
        return Reply(done.document)

    def close_session(self, dataset: str, session_id: str) -> Reply:
        """Take no more answers of a session: by its opener or an admin."""
        names = {"dataset": dataset, "session": session_id}
        return Reply(self._run("close_session", names, body={}).document)

    def sessions(self, dataset: str) -> list[Session]:
        """The open sessions, oldest first."""
        return [Session(item, self) for item in self._pages("sessions", {"dataset": dataset})]

    def session(self, dataset: str, session_id: str) -> Session:
        """One session, open or closed."""
        return Session(self._get("session", {"dataset": dataset, "session": session_id}), self)

    def derive(
        self,
        dataset: str,
        parent: int | Receipt | Derived,
        description: str,
        *,
        principal: str | None = None,
        key: str | None = None,
    ) -> Derived:
        """Record what was made of a release: a plot, a model card, a rounded table. It costs nothing.

        Args:
            dataset: name of the dataset; a closed one takes it too.
            parent: the receipt of what it was made of, or its number in the dataset's own ledger.
            description: one line of 1 to 200 characters.
            principal: on whose behalf; needs a key that may act for it.
            key: idempotency key; leave it out unless you ask again after `OutcomeUnknown`.
        """
        key = new_key() if key is None else key
        number = parent if isinstance(parent, int) else _own(parent)
        body: dict[str, Any] = {"parent": number, "description": description}
        body |= about_body(principal=principal)
        done = self._run("derive", {"dataset": dataset}, body=body, key=key)
        return Derived(_receipt(done, dataset, key))

    def sweep(
        self,
        dataset: str,
        mechanism: Charges,
        count: int | None,
        runs: int,
        name: str,
        expires_in_s: int,
        **under: Unpack[Under],
    ) -> Sweep:
        """Hold up to `runs` runs of a sweep at once; leaving the block settles for those that started.

            with client.sweep("d", step, 1000, runs=20, name="lr", expires_in_s=86_400) as sweep:
                for rate in rates:
                    sweep.run()  # raises UsedUp once 20 have started
                    train(rate)

        Args:
            count: releases of one run (None where `mechanism` is a list).
            runs: how many may start, 1 to 1,000,000.
            name: what the runs are called together: the group's odometer has it.

        A sweep has no key of its own to ask again with: after `OutcomeUnknown` its hold may be there, spent,
        until somebody settles it for 0 (`holds` lists it).
        """
        group = (name, runs)
        hold = self.hold(dataset, mechanism, count, expires_in_s=expires_in_s, group=group, **under)
        body = charge_body(mechanism, count)
        charges = body.get("charges", [body])
        return Sweep(hold, [item["count"] for item in charges], runs, [item["mechanism"] for item in charges])


def _own(parent: Receipt | Derived) -> int:
    """The number of a receipt's entry. Raises ValueError for one of a shard, whose numbers are its own."""
    if parent.get("shard") is not None:
        raise ValueError(
            f"entry {parent.sequence} is in shard {parent['shard']}: what was made of a unit's charge is not "
            "recorded, a parent is an entry of the dataset's own ledger"
        )
    return parent.sequence


def _receipt(done: Done, dataset: str, key: str) -> Mapping[str, Any]:
    """The receipt, once it is certain that it is one: a release will rest on it."""
    document = done.document
    if isinstance(document, Mapping) and document.get("dataset") == dataset:
        whole = isinstance(document.get("sequence"), int) and isinstance(document.get("replayed"), bool)
        if whole and document.get("hash"):
            return document
    raise _no_receipt(dataset, key)


def _no_receipt(dataset: str, key: str) -> UnexpectedAnswer:
    return UnexpectedAnswer(
        f"The answer to the charge with key {key!r} is no receipt for dataset {dataset!r}. Release nothing. "
        "Does the URL point at the service itself, and is a proxy between?"
    )
