"""Confident-GNMax (PATE) with OpenDP's noise: labels from teachers' votes, where enough of them agree.

    with ConfidentGnmax(client, "patients", classes=10, threshold=3500, standard_deviation_check=1500,
                        standard_deviation_answer=100, max_answers=1000) as teachers:
        for votes in counts_of_each_query:
            label = teachers.label(votes)    # a class, or None where they do not agree; nothing else goes out

Algorithm 1 of Papernot et al. 2018: a query is answered when its largest count and noise of σ₁ reach the
threshold, with the largest of all counts and noise of σ₂ each, drawn afresh. Each check is paid before it is
made and each answer before it is drawn. The votes and the noisy counts stay here.
"""

from collections.abc import Sequence
from typing import Any, Final, NoReturn, Self, SupportsFloat, SupportsIndex, Unpack

from odometer_client.base import OdometerError
from odometer_client.bodies import Under
from odometer_client.client import Client
from odometer_client.errors import BudgetExceeded
from odometer_client.queries.noise import finite, gaussian
from odometer_client.sessions import Session

Vote = SupportsFloat | SupportsIndex
"""How many teachers voted for a class: a whole number, also one of numpy."""
_MOST_VOTES: Final = 2.0**53


class ConfidentGnmax:
    """Answers queries in a session of its own. What a person's data taught must be in one teacher's vote.

    Args:
        client, dataset: who pays, and on what. A person of the dataset changes one teacher, who moves the
            largest count by 1 at most, and two counts by 1 each.
        classes: how many there are, 2 or more; public. Every query has a count for each.
        threshold: what the largest count is compared with, in votes; public.
        standard_deviation_check: of the noise on the largest count, in votes: the paper's σ₁.
        standard_deviation_answer: of the noise on each count, in votes: the paper's σ₂. Both are sent as they
            are.
        max_answers: after so many answered queries it is over.
        under: as for `Client.open_session`.

    Raises BudgetExceeded, and whatever else opening a session may raise: nothing was drawn then. Raises
    NotTheRunner where the opening was answered with a session of before.
    """

    def __init__(
        self,
        client: Client,
        dataset: str,
        *,
        classes: int,
        threshold: float,
        standard_deviation_check: float,
        standard_deviation_answer: float,
        max_answers: int,
        **under: Unpack[Under],
    ) -> None:
        if classes < 2:
            raise ValueError(f"classes is {classes}: 2 or more work")
        self._classes = classes
        self._threshold = finite("threshold", threshold)
        check = _above_0("standard_deviation_check", standard_deviation_check)
        answer = _above_0("standard_deviation_answer", standard_deviation_answer)
        self._on_largest = gaussian(None, 1.0, check)
        self._on_counts = gaussian(classes, 1.0, answer)  # of two counts that move, twice the ρ of one
        document = {
            "kind": "confident_gnmax",
            "standard_deviation_check": check,
            "standard_deviation_answer": answer,
            "max_answers": max_answers,
        }
        self._over: OdometerError | None = None
        self.session: Session = client.open_session(dataset, document, **under)
        """The session: how many queries it answered and will, and the receipt of the last charge."""
        self.session.check_runner()  # of another's session the paid check is made there

    def label(self, votes: Sequence[Vote]) -> int | None:
        """The class that the votes name, or None where too few agree. Only this may go out.

        An answer pays for itself and for the next query's check before it is drawn: where both do not fit,
        nothing is answered, the session is closed, and this raises BudgetExceeded. None pays for the next
        check: where that does not fit it is still given, since its own check was paid, and the next call
        raises. After any other error nothing goes out and nothing more is asked.

        Raises ValueError for votes that are no counts, before any noise is drawn; it does not repeat them.
        """
        if self._over is not None:
            raise self._over
        counts = self._counts(votes)
        # Of a closed session the service refuses it below; no noise is drawn for nothing.
        agree = self.session.open and bool(self._on_largest(max(counts)) >= self._threshold)
        try:
            self.session.answer(agree)
        except BudgetExceeded as refused:
            self._over = refused
            self.session.close()
            if agree:
                raise
            return None
        except OdometerError as error:
            self._over = error
            raise
        if not agree:
            return None
        noisy: list[float] = self._on_counts(counts)
        return max(range(self._classes), key=noisy.__getitem__)

    def close(self) -> None:
        """Ask nothing more. What was paid stays paid, the next query's check too."""
        self.session.close()

    def _counts(self, votes: Sequence[Vote]) -> list[float]:
        """Errors do not repeat the votes: they would go into a log."""
        if len(votes) != self._classes:
            raise ValueError(f"votes: a count for each of the {self._classes} classes, 0 where there is none")
        try:
            counts = [float(vote) for vote in votes]
        except (TypeError, ValueError, OverflowError):
            raise ValueError("votes: not all of them are numbers") from None
        if not all(0 <= count < _MOST_VOTES and count.is_integer() for count in counts):
            raise ValueError("votes: not all of them are whole numbers of 0 or more")
        return counts

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("it is not copied or stored: two would go on with one paid check")


def _above_0(name: str, value: Any) -> float:
    number = finite(name, value)
    if number <= 0:
        raise ValueError(f"{name} is {value}: a number above 0 works")
    return number
