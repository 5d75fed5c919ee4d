"""Replies of the service, as read-only mappings with typed attributes.

Each is the JSON document itself (`receipt["left"]`, `dict(receipt)`), so fields of a newer service are kept.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


class Reply(Mapping[str, Any]):
    """A JSON object. Compares as its content; prints as its class, with the members in its own order."""

    __slots__ = ("_members",)

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = dict(members)

    def __getitem__(self, name: str) -> Any:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        members = ", ".join(f"{name}={value!r}" for name, value in self._members.items() if value is not None)
        return f"{type(self).__name__}({members})"


Document = Reply
"""The former name of `Reply`; it still works."""


class Receipt(Reply):
    """Proof that a charge is durably in the ledger.

    `retried` is the client's own: an earlier try of the same call may have arrived, so that `replayed`
    is no surprise. An old receipt that nobody retried for (`replayed and not retried`) pays for nothing new.
    """

    __slots__ = ("retried",)

    def __init__(self, members: Mapping[str, Any], *, retried: bool = False) -> None:
        super().__init__(members)
        self.retried = retried

    @property
    def dataset(self) -> str:
        return str(self["dataset"])

    @property
    def sequence(self) -> int:
        """The number of the entry in the dataset's ledger."""
        return int(self["sequence"])

    @property
    def hash(self) -> str:
        """SHA-256 of the entry, hexadecimal."""
        return str(self["hash"])

    @property
    def replayed(self) -> bool:
        """Whether this key had been charged before: this is that first receipt again."""
        return bool(self["replayed"])

    @property
    def loss(self) -> Mapping[str, float | None]:
        """The loss of this charge: `pure`, `rho`, `mu`, `delta`; None is "no bound"."""
        return dict(self["loss"])

    @property
    def left(self) -> list[dict[str, Any]]:
        """Per budget: `budget`, `kind`, `limit`, `spent`, `left`, `used` (0 to 1)."""
        return list(self["left"])

    @property
    def notes(self) -> list[str]:
        """Notes on how the loss was counted, such as that shuffling did not help; often none."""
        return list(self.get("notes") or ())


class Derived(Reply):
    """Proof that it is on record what was made of a release. Nothing was charged."""

    @property
    def sequence(self) -> int:
        """The number of the entry in the dataset's ledger."""
        return int(self["sequence"])

    @property
    def parent(self) -> int:
        """The number of the entry that it was made of."""
        return int(self["parent"])

    @property
    def replayed(self) -> bool:
        """Whether this key had been used before: this is that first entry again."""
        return bool(self["replayed"])


class Check(Reply):
    """The answer of a dry run. Nothing was charged, and another caller may be faster."""

    @property
    def fits(self) -> bool:
        return bool(self["fits"])

    @property
    def left(self) -> list[dict[str, Any]]:
        """Per budget what would be left after the charge, if it fits."""
        return list(self["left"])

    @property
    def refusals(self) -> list[dict[str, Any]]:
        """Each budget that would refuse, and by how much it is short."""
        return list(self["refusals"])

    @property
    def would_fit(self) -> dict[str, Any]:
        """`largest_count`, `least_noise`, `leading_items`: what would fit instead, None where not known."""
        return dict(self["would_fit"])

    @property
    def notes(self) -> list[str]:
        """Notes on how the loss is counted, as on a receipt; often none."""
        return list(self.get("notes") or ())

    def __bool__(self) -> bool:
        return self.fits


class EventCharges(list[tuple[dict[str, Any], int]]):
    """The charges of an event, as (mechanism, count); empty if it loses nothing."""

    def __init__(self, charges: Iterable[tuple[dict[str, Any], int]] = (), notes: Iterable[str] = ()) -> None:
        super().__init__(charges)
        self.notes = list(notes)
        """Which parts of the event lose nothing, and why: they are not charged. Often none."""


class Odometer(Reply):
    """The readings of a dataset or of one of its scopes, each with what it means and when it holds."""

    @property
    def scope(self) -> str:
        """The scope of this odometer."""
        return str(self["scope"])

    @property
    def known(self) -> bool:
        """Whether the scope was ever charged, or is a partition, or is named by a budget.

        Else it reads zero, also where its name has a fault in it: `notes` says which one may be meant.
        """
        return bool(self.get("known", True))

    @property
    def notes(self) -> list[str]:
        """Notes on a scope that is not known; usually none."""
        return list(self.get("notes") or ())

    @property
    def held(self) -> dict[str, float | None]:
        """The total of the open holds. It is part of the readings; the unused part is given back."""
        return dict(self["held"])

    @property
    def readings(self) -> list[dict[str, Any]]:
        return list(self["readings"])

    def reading(self, name: str) -> dict[str, Any]:
        """The reading of that name, e.g. "if_stopped_now" or "fixed_plan"; KeyError names those there are."""
        for reading in self.readings:
            if reading["name"] == name:
                return reading
        raise KeyError(f"no reading {name!r}; there are {[reading['name'] for reading in self.readings]}")


class Dataset(Reply):
    """A dataset: its unit, adjacency, and the state of each budget."""

    @property
    def name(self) -> str:
        return str(self["name"])

    @property
    def problem(self) -> dict[str, Any] | None:
        """In a list of datasets: why this one cannot be read (`type`, `title`, `detail`), and no more."""
        return self.get("problem")

    @property
    def adjacency(self) -> str:
        """When two datasets are neighbours: "add_remove", "replace_one" or "zero_out"."""
        return str(self["adjacency"])

    @property
    def budgets(self) -> list[dict[str, Any]]:
        """Per budget its definition and `limit`, `spent`, `left`, `used`, `etag`.

        Of a budget that each of many scopes has, `spent`, `left` and `used` are None.
        """
        return list(self["budgets"])
