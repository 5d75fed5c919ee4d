"""A budget: what its document says, the promise it keeps, and the filter that refuses."""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from odometer_accountant.model import Model, Number
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.numerics.rounding import (
    decimal,
    round_down,
    round_up,
    shown_down,
    shown_up,
)
from odometer_accountant.scopes import DATASET_SCOPE, SCOPE
from odometer_accountant.windows import Window


class Left(NamedTuple):
    """The state of a budget: at one Rényi order where `order` is given, else in the budget's own parameter.

    `spent` (infinity: no bound) and `used` (0 to 1) are rounded up, `limit` and `left` down.
    """

    limit: float
    spent: float
    left: float
    used: float
    order: float | None = None

    @classmethod
    def of_units(cls, limit: int, spent: int, unit: int, order: float | None = None) -> Self:
        """From whole units, `unit` of which make 1; each figure is rounded once."""
        return cls(
            shown_down(limit, unit),
            shown_up(spent, unit),
            shown_down(limit - spent, unit) if spent < limit else 0.0,
            shown_up(spent, limit) if spent < limit else 1.0,
            order,
        )

    @classmethod
    def of_floats(cls, limit: float, spent: float) -> Self:
        """From a reading that was already rounded up."""
        if not spent < limit:
            return cls(limit, spent, 0.0, 1.0)
        exact_limit, exact_spent = decimal(limit), Fraction(spent)
        left = max(0.0, round_down(exact_limit - exact_spent))
        return cls(limit, spent, left, min(1.0, round_up(exact_spent / exact_limit)))


NO_BOUND: Final = "the charge has no bound at any order: it is not differentially private as described"
"""Reason of a refusal that holds for every budget."""


def without_bound(asked: Loss) -> bool:
    """Whether a charge has no bound in any notion, so that no budget can admit it."""
    return bool(asked.unbounded[asked.grid.delta]) or all(asked.unbounded[: asked.grid.n_orders])


@dataclass(frozen=True)
class Filter:
    """A budget as a test of totals (SOUNDNESS sections 3 and 4). Immutable; every method is pure."""

    name: str
    """Name of the budget."""
    kind: str
    limit: float
    """The limit in the budget's own parameter."""
    grid: Grid

    def allows(self, totals: Loss) -> bool:
        """Whether the promise still holds at `totals`."""
        raise NotImplementedError

    def spent(self, totals: Loss) -> float:
        """`totals` in the budget's own parameter, rounded up; infinity where there is no bound."""
        raise NotImplementedError

    def left(self, totals: Loss) -> Left:
        """The figures of a receipt."""
        raise NotImplementedError

    def left_of_limit(self, totals: Loss) -> Left:
        """The same, always in the budget's own parameter; may take a millisecond."""
        return self.left(totals)

    def why_not(self, asked: Loss, after: Loss) -> str:
        """Why the totals `after`, which include the charge `asked`, are refused, in words."""
        raise NotImplementedError

    def capacities(self) -> tuple[tuple[int, int], ...]:
        """Limits as (coordinate, units) pairs: totals within all of them keep the promise.

        The shares of teams are parts of these limits. Empty when there are none.
        """
        raise NotImplementedError


Slug = Annotated[str, Field(strict=True, pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
"""1 to 64 characters: small letters, digits, - and _, not starting with - or _."""
LEAST_DELTA: Final = 1e-290
"""Far below any use. A smaller δ cannot be split exactly, and its logarithms overflow."""
Delta = Annotated[Number, Field(ge=LEAST_DELTA, lt=1)]
RESERVED_MAX: Final = 64
"""Most teams with a share of one budget."""
Share = Annotated[Number, Field(gt=0, le=1)]


class Budget(Model):
    """The document of a budget, as a person writes it. Subclassing registers a kind.

    A subclass declares `kind: Literal[...]`, its limit as a bounded field, the class facts below and
    `filter`. Set in a dataset, a budget is stored with what `fixed` returns: integers and decimal strings.
    Its filter is built from both (SOUNDNESS section 4).
    """

    name: Slug
    """Its name within the dataset."""
    scope: Annotated[str, Field(strict=True, pattern=SCOPE)] = DATASET_SCOPE
    """What it limits: `dataset`, or one or each (`*`) of a kind: `principal/p_1`, `team/*`, `partition/eu`,
    `group/*`, `unit/*`."""
    window: Window | None = None
    """Starts anew each hour, day, week or month (UTC, by the calendar); left out: for life."""
    reserved: Annotated[dict[Slug, Share], Field(min_length=1, max_length=RESERVED_MAX)] | None = None
    """Shares of the limit kept for teams, by name: nobody else can use them. Together at most 1."""

    if TYPE_CHECKING:
        kind: str

    parameter: ClassVar[str]
    """Name of the field that holds the limit."""
    symbol: ClassVar[str]
    """Symbol of the limit, such as ε."""
    words: ClassVar[str]
    """What is limited, in a few words; `{field}` stands for the value of a field."""
    promise: ClassVar[str]
    """The guarantee that holds for all admitted charges together."""
    source: ClassVar[str]
    """Papers, or the section of SOUNDNESS that has the proof."""
    examples: ClassVar[tuple[dict[str, Any], ...]]
    """Documents without a name."""
    adds_up: ClassVar[Literal["limit", "square", "elsewhere"]] = "limit"
    """Where charges add up: in the parameter of the limit, in its square, or in other coordinates."""
    limit_may_follow_results: ClassVar[bool] = False
    """Whether the last limit is the promise even where it was chosen after looking at results."""

    registry: ClassVar[dict[str, type["Budget"]]] = {}
    """Every kind by its name, in the order in which they are defined."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "kind" not in cls.model_fields:
            return  # a common base of several kinds
        kind = cls.model_fields["kind"].default
        if Budget.registry.setdefault(kind, cls) is not cls:
            raise TypeError(f"two kinds of budget are named {kind!r}")

    def fixed(self, grid: Grid, kept: dict[str, Any] | None = None) -> dict[str, Any]:
        """The part of a budget that is computed once, when it is set, and stored; no floats.

        `kept` is that part of an earlier version of the budget, which stays as it is.
        """
        del grid, kept
        return {}

    @abstractmethod
    def filter(self, grid: Grid, fixed: dict[str, Any]) -> Filter:
        """The test of totals that enforces this budget."""

    def epsilon_at(self, delta: float) -> tuple[float, float | None]:
        """The ε that the promise amounts to, rounded up, and its δ: `delta` where the kind has none of its
        own.

        None as δ: the ε is pure.
        """
        raise NotImplementedError

    @property
    def promised_delta(self) -> float | None:
        """The δ that the document states; None for kinds without one."""
        return None

    @model_validator(mode="after")
    def _shares_of_one_whole(self) -> Self:
        if self.reserved is None:
            return self
        if self.scope != DATASET_SCOPE or self.window is not None:
            raise ValueError("reserved: only a budget of the whole dataset, for life, can keep shares")
        if sum(map(decimal, self.reserved.values())) > 1:
            raise ValueError("reserved: the shares are more than 1 together")
        return self

    def limit(self) -> float:
        """The limit in the budget's own parameter."""
        return float(getattr(self, self.parameter))

    def same_weights(self, other: "Budget") -> bool:
        """Whether `other` differs in its limit alone, so that the fixed part stays."""
        changed = {self.parameter, "name", "reserved"}
        return type(self) is type(other) and self.model_dump(exclude=changed) == other.model_dump(
            exclude=changed
        )

    def document(self) -> dict[str, Any]:
        """The JSON document, without fields that were not given."""
        document = self.model_dump(mode="json", exclude_none=True)
        if document["scope"] == DATASET_SCOPE:
            del document["scope"]  # as in ledgers written before budgets had scopes
        return document
