"""Base class of mechanisms: a frozen class that states the loss of ONE release. Subclassing registers it."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, ForwardRef, Self

from pydantic import (
    AfterValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from odometer_accountant.model import STORED, Model
from odometer_accountant.numerics.curve import Curve
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.plain_text import fault


class Adjacency(StrEnum):
    """When two datasets are neighbours."""

    add_remove = "add_remove"
    """One unit is added or removed."""
    replace_one = "replace_one"
    """One unit's data is replaced by any other; the number of units is public."""
    zero_out = "zero_out"
    """One unit's data is replaced by a blank that contributes nothing; the number of units is public."""


EVERY_ADJACENCY = frozenset(Adjacency)


def _plain(text: str, info: ValidationInfo) -> str:
    why = None if info.context == STORED else fault(text)
    if why is not None:
        raise ValueError(why)
    return text


PLAIN: Final = AfterValidator(_plain)
"""A constraint on text for people: one line of visible characters. Text from a ledger is not checked."""


DEPTH_MAX: Final = 4
"""Most mechanisms within each other."""


class Mechanism(Model):
    """A parameterised DP computation. It never sees a count, a total, a budget or a store.

    A subclass declares `kind: Literal[...]`, bounded fields with docstrings, the class facts below,
    `curve(grid)` and, where a parameter buys privacy, `noisier(factor)`; where one is a δ,
    `less_delta(factor)`.
    """

    if TYPE_CHECKING:
        kind: str

    title: ClassVar[str]
    purpose: ClassVar[str]
    """Its use, in one sentence."""
    formula: ClassVar[str]
    source: ClassVar[str]
    """Paper and theorem."""
    adjacencies: ClassVar[frozenset[Adjacency]] = EVERY_ADJACENCY
    """The adjacencies under which the analysis holds."""
    elsewhere: ClassVar[str] = ""
    """The mechanism to use under the other adjacencies."""
    avoid: ClassVar[str] = ""
    """When not to use it."""
    samplable: ClassVar[bool] = False
    """Whether it may run on a sample: one computation on the units that were drawn, with the same curve for
    any number of them. A plan over positions in the data, another sample, a group or a session is not."""
    instead_of_sampling: ClassVar[str] = ""
    """What to do instead, where it may not run on a sample; empty: charge it without the sampling."""
    local: ClassVar[bool] = False
    """Whether each unit randomises its own report."""
    sanitisable: ClassVar[bool] = False
    """Whether a hold of it may be settled at a sanitised data-dependent figure: needs a theorem."""
    samples: ClassVar[bool] = False
    """Whether it runs its base on a random sample."""
    always_gaussian: ClassVar[bool] = False
    """Whether any number of them together is one Gaussian, at any parameters."""
    float_bounds: ClassVar[bool] = False
    """Whether the bounds are floats. Sums of exact fractions grow longer, and slower to compute."""
    curve_ms: ClassVar[float] = 2.0
    """Processor time of one curve in milliseconds, as measured on a core of 2020; without that of its
    parts."""
    examples: ClassVar[tuple[dict[str, Any], ...]]

    registry: ClassVar[dict[str, type["Mechanism"]]] = {}

    @model_validator(mode="after")
    def _not_too_deep(self) -> Self:
        if self.depth() > DEPTH_MAX:
            raise ValueError(f"mechanisms nested {DEPTH_MAX + 1} deep: at most {DEPTH_MAX} work")
        return self

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "kind" not in cls.model_fields:
            return  # a common base of several mechanisms
        kind = cls.model_fields["kind"].default
        if Mechanism.registry.setdefault(kind, cls) is not cls:
            raise TypeError(f"two mechanisms are named {kind!r}")

    def curve(self, grid: Grid) -> Curve:
        """The loss of one release on `grid`: an upper bound of every coordinate."""
        raise NotImplementedError

    def noisier(self, factor: float) -> Self | None:
        """The same release with `factor` times the noise, None when no parameter buys privacy."""
        del factor
        return None

    def less_delta(self, factor: float) -> Self | None:
        """The same release with its δ divided by `factor`, 1 or more; None when it has no δ."""
        del factor
        return None

    def parts(self) -> "tuple[Mechanism, ...]":
        """The mechanisms inside this one."""
        return ()

    def depth(self) -> int:
        """1 for a mechanism without parts, else 1 more than the depth of its deepest part."""
        return 1 + max((part.depth() for part in self.parts()), default=0)

    def analysed_under(self) -> frozenset[Adjacency]:
        """The adjacencies of the analysis with these parameters, without regard to its parts."""
        return self.adjacencies

    def instead(self) -> str:
        """The mechanism to use under the other adjacencies."""
        return self.elsewhere

    def valid_under(self) -> frozenset[Adjacency]:
        """The adjacencies under which this mechanism and all its parts are analysed."""
        return self.analysed_under().intersection(*(part.valid_under() for part in self.parts()))

    def first_invalid(self, adjacency: Adjacency) -> "Mechanism | None":
        """This mechanism or the first part of it that is not analysed under `adjacency`; None for none."""
        if adjacency not in self.analysed_under():
            return self
        return next((found for part in self.parts() if (found := part.first_invalid(adjacency))), None)

    def notes(self) -> "tuple[str, ...]":
        """Notes for the caller on how this and its parts are charged; usually none."""
        own = self.note()
        return (*((own,) if own else ()), *(note for part in self.parts() for note in part.notes()))

    def as_gaussian(self) -> float | None:
        """Noise multiplier, rounded down, of a Gaussian mechanism that dominates this one.

        None when there is none, as for a discrete Gaussian.
        """
        return None

    def note(self) -> str | None:
        """A note for the caller on how this is charged, without its parts; None for no note."""
        return None

    def document(self) -> dict[str, Any]:
        """The JSON document, without fields that were not given."""
        return self.model_dump(mode="json", exclude_none=True)


if TYPE_CHECKING:
    Base = Mechanism
else:
    # Any mechanism of the registry. Resolved in the package when all are known.
    # Its schema is short: in full, every mechanism would contain every other, to any depth.
    Base = Annotated[
        ForwardRef("AnyMechanism"),
        WithJsonSchema({"type": "object", "title": "mechanism", "required": ["kind"]}),
    ]


class Around(Mechanism):
    """A mechanism around one other, its `base`."""

    if TYPE_CHECKING:
        base: Base

    def parts(self) -> tuple[Mechanism, ...]:
        return (self.base,)

    def noisier(self, factor: float) -> Self | None:
        base = self.base.noisier(factor)
        return None if base is None else self.model_copy(update={"base": base})

    def less_delta(self, factor: float) -> Self | None:
        base = self.base.less_delta(factor)
        return None if base is None else self.model_copy(update={"base": base})


def bounded(value: float, least: float, most: float) -> float:
    """`value`, clipped to the range of a field."""
    return min(max(value, least), most)


Monotone = Annotated[bool | None, Field(strict=True)]
"""The caller's claim that all scores or queries change in one direction when one unit is removed."""
MONOTONE: Final = "monotone"
NONE_MONOTONE: Final = (
    "a unit that is replaced makes some scores rise while others fall, so none are monotone there: state ε "
    "as of other scores, twice as much for the same noise, and leave monotone out"
)
"""The reason to refuse the claim under replace_one, with what works instead."""


class OneDirection(Mechanism):
    """A mechanism whose ε is half where all scores or queries change in one direction."""

    if TYPE_CHECKING:
        monotone: Monotone

    @field_validator(MONOTONE, mode="after", check_fields=False)
    @classmethod
    def _true_or_not_said(cls, value: bool | None) -> bool | None:
        return value or None  # the document without the field means the same charge

    def analysed_under(self) -> frozenset[Adjacency]:
        return self.adjacencies - {Adjacency.replace_one} if self.monotone else self.adjacencies

    def instead(self) -> str:
        if not self.monotone:
            return self.elsewhere
        return NONE_MONOTONE
