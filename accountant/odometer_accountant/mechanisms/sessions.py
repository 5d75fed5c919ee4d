"""The kinds of session: interactive mechanisms that charge as their public answers come.

A kind is a frozen document that says, by pure functions, what is charged when it opens and after each answer.
Whatever is charged is paid before the step that it is for; subclassing registers.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, Union

from pydantic import Field, TypeAdapter, field_validator, model_validator

from odometer_accountant.mechanisms import Mechanism, Model, Whole
from odometer_accountant.mechanisms.base import Monotone
from odometer_accountant.mechanisms.charge import Charge
from odometer_accountant.mechanisms.interactive import AboveThreshold, RunEpsilon
from odometer_accountant.mechanisms.noise import Gaussian, NoiseMultiplier
from odometer_accountant.mechanisms.pate import PateGnmax, StandardDeviation

ABOVE_MAX = 1_000_000
"""Of the above answers of one session."""
MostAbove = Annotated[Whole, Field(ge=1, le=ABOVE_MAX)]


class Session(Model):
    """An interactive mechanism: queries are asked until so many of them were answered with above."""

    if TYPE_CHECKING:
        kind: str

    title: ClassVar[str]
    purpose: ClassVar[str]
    source: ClassVar[str]
    examples: ClassVar[tuple[dict[str, Any], ...]]
    registry: ClassVar[dict[str, type["Session"]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        kind = cls.model_fields["kind"].default
        if Session.registry.setdefault(kind, cls) is not cls:
            raise TypeError(f"two kinds of session call themselves {kind!r}")

    @property
    def most_above(self) -> int:
        """After so many above answers the session is closed."""
        raise NotImplementedError

    def opening(self) -> tuple[Charge, ...]:
        """The charge before the first query."""
        raise NotImplementedError

    def below(self) -> tuple[Charge, ...]:
        """The charge after a below answer, before the next query; nothing when it is free."""
        raise NotImplementedError

    def above(self, last: bool) -> tuple[Charge, ...]:
        """The charge with an above answer; after the `last` one no query follows."""
        raise NotImplementedError

    def owed(self, step: Mapping[str, Any]) -> tuple[Charge, ...]:
        """The charge for a step, as a ledger entry names it."""
        if "open" in step:
            return self.opening()
        return self.above(last=step["last"]) if step["above"] else self.below()

    def document(self) -> dict[str, Any]:
        """The JSON document, without what was not given."""
        return self.model_dump(mode="json", exclude_none=True)


class SparseVector(Session):
    """Sparse vector: runs of AboveThreshold, each paid before it begins; answers below are free."""

    kind: Literal["sparse_vector"] = "sparse_vector"
    epsilon_threshold: RunEpsilon
    """Sensitivity of the queries over the scale of the Laplace noise on the threshold: scale
    Δ/epsilon_threshold, drawn afresh for each run. In nats, 1e-9 to 1e3."""
    epsilon_answers: RunEpsilon
    """Twice the sensitivity of the queries over the scale of the Laplace noise on each of them: scale
    2Δ/epsilon_answers; of monotone queries Δ/epsilon_answers, and say `monotone`. In nats, 1e-9 to 1e3."""
    monotone: Monotone = None
    """true: all queries rise or all fall when a unit is added or blanked. Under replace_one none count as
    such, and this is refused."""
    max_above: MostAbove
    """After so many above answers it closes, 1 to 1,000,000. Each of them ends a run."""

    title: ClassVar[str] = "Sparse vector"
    purpose: ClassVar[str] = "Many queries against a threshold, few of which are expected to be above it."
    source: ClassVar[str] = "Dwork, Roth 2014, ch. 3; Lyu, Su, Li 2017, Alg. 1 once per run; Zhu, Wang 2020"
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "sparse_vector", "epsilon_threshold": 0.1, "epsilon_answers": 0.2, "max_above": 3},
    )

    @field_validator("monotone", mode="after")
    @classmethod
    def _true_or_not_said(cls, value: bool | None) -> bool | None:
        return value or None

    @property
    def most_above(self) -> int:
        return self.max_above

    def _run(self) -> tuple[Charge, ...]:
        run = AboveThreshold(epsilon_threshold=self.epsilon_threshold, epsilon_answers=self.epsilon_answers)
        return (Charge(mechanism=run, count=1),)

    def opening(self) -> tuple[Charge, ...]:
        return self._run()

    def below(self) -> tuple[Charge, ...]:
        return ()

    def above(self, last: bool) -> tuple[Charge, ...]:
        return () if last else self._run()


class ConfidentGnmax(Session):
    """Confident-GNMax: each query is checked against a threshold, and answered only when it passes."""

    kind: Literal["confident_gnmax"] = "confident_gnmax"
    standard_deviation_check: NoiseMultiplier | None = None
    """Standard deviation of the Gaussian noise on the largest count, in votes: the paper's σ₁. 0 (no noise)
    or 0.01 to 1e9. Give this or `noise_multiplier_check`."""
    standard_deviation_answer: StandardDeviation | None = None
    """Standard deviation of the Gaussian noise on each count, in votes: the paper's σ₂. 0 (no noise) or 0.02
    to 1e9. Give this or `noise_multiplier_answer`."""
    noise_multiplier_check: NoiseMultiplier | None = None
    """The same over 1, by which a teacher moves the largest count: σ₁ itself. 0 (no noise) or 0.01 to 1e9."""
    noise_multiplier_answer: NoiseMultiplier | None = None
    """The same over √2, since a teacher moves two counts by one: σ₂/√2. σ₂ itself, passed here, would halve
    the charge of an answer. 0 (no noise) or 0.01 to 1e9."""
    max_answers: MostAbove
    """After so many answered queries it closes, 1 to 1,000,000."""

    title: ClassVar[str] = "Confident-GNMax (PATE)"
    purpose: ClassVar[str] = "Labels from teachers' votes, given only where enough of them agree."
    source: ClassVar[str] = (
        "Papernot et al. 2018, Alg. 1; data-independent: α/(2σ₁²) for a check, α/σ₂² for an answer"
    )
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {
            "kind": "confident_gnmax",
            "standard_deviation_check": 150.0,
            "standard_deviation_answer": 40.0,
            "max_answers": 100,
        },
        {
            "kind": "confident_gnmax",
            "noise_multiplier_check": 150.0,
            "noise_multiplier_answer": 28.28,
            "max_answers": 100,
        },
    )

    @model_validator(mode="after")
    def _one_of_each_pair(self) -> Self:
        for step in ("check", "answer"):
            multiplier, deviation = f"noise_multiplier_{step}", f"standard_deviation_{step}"
            if (getattr(self, multiplier) is None) == (getattr(self, deviation) is None):
                raise ValueError(f"give exactly one of {deviation} and {multiplier}")
        return self

    @property
    def most_above(self) -> int:
        return self.max_answers

    def opening(self) -> tuple[Charge, ...]:
        check = self.standard_deviation_check
        if self.noise_multiplier_check is not None:
            check = self.noise_multiplier_check
        return (_once(Gaussian.model_validate({"noise_multiplier": check})),)

    def below(self) -> tuple[Charge, ...]:
        return self.opening()

    def above(self, last: bool) -> tuple[Charge, ...]:
        answer = _once(
            PateGnmax(
                noise_multiplier=self.noise_multiplier_answer,
                standard_deviation_of_counts=self.standard_deviation_answer,
            )
        )
        return (answer,) if last else (answer, *self.opening())


def _once(mechanism: Mechanism) -> Charge:
    return Charge(mechanism=mechanism, count=1)


_KINDS: Any = tuple(Session.registry[kind] for kind in sorted(Session.registry))
if TYPE_CHECKING:
    AnySession = Session
else:
    AnySession = Annotated[Union[_KINDS], Field(discriminator="kind")]  # noqa: UP007  (of a tuple)
ANY_SESSION: TypeAdapter[Session] = TypeAdapter(AnySession)
