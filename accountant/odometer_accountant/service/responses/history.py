"""The spending over time, and by principal and mechanism."""

from odometer_accountant.service.responses.base import Reply


class Point(Reply):
    """A moment in a dataset's history."""

    sequence: int
    time: str
    if_stopped_now: float | None
    used: dict[str, float]


class HistoryReply(Reply):
    """Down-sampled, oldest first, ending now."""

    points: list[Point]


class PrincipalSpend(Reply):
    """The spending of one principal, as a plan of its own."""

    principal: str
    name: str | None
    epsilon: float | None
    rho: float | None
    delta: float | None


class MechanismSpend(Reply):
    """The spending of one kind of mechanism, as a plan of its own."""

    kind: str
    epsilon: float | None
    rho: float | None
    delta: float | None


class SpendReply(Reply):
    """Spending by principal and by mechanism: at most 1000 of each, by name."""

    by_principal: list[PrincipalSpend]
    by_mechanism: list[MechanismSpend]
    more: bool
    """Whether there are others, which `GET /v1/datasets/{dataset}/scopes` has in pages."""
    delta: float
    holds: str
