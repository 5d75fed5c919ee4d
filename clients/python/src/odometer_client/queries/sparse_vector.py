"""Sparse vector with OpenDP's noise: which queries are above a threshold, paid by the few that are.

    with SparseVector(client, "patients", threshold=100, sensitivity=1, epsilon_threshold=0.1,
                      epsilon_answers=0.2, max_above=3) as svt:
        for query in queries:
            if svt.above(query(rows)):    # a bool, and nothing else, may go out
                ...

This is the version whose below answers are free: Laplace noise on the threshold, drawn afresh for each run,
and on each query, drawn afresh for each; a run ends with its first above answer, and the next is paid before
it begins (Dwork, Roth 2014, ch. 3; Lyu, Su, Li 2017, Alg. 1 once per run). The noisy values stay here.
"""

import threading
from typing import Any, NoReturn, Self, Unpack

from odometer_client.base import OdometerError
from odometer_client.bodies import Under
from odometer_client.client import Client
from odometer_client.errors import BudgetExceeded
from odometer_client.queries.noise import finite, laplace
from odometer_client.sessions import Session


class SparseVector:
    """Asks queries against a threshold, in a session of its own: what it drew is in this process alone.

    A session that another process left cannot be gone on with: its run would have two thresholds for the
    price of one. Open a new one.

    Args:
        client, dataset: who pays, and on what.
        threshold: what query values are compared with; public.
        sensitivity: by how much a unit changes any of the query values at most, under the dataset's
            adjacency.
        epsilon_threshold: the threshold's noise has scale sensitivity/epsilon_threshold.
        epsilon_answers: each query's noise has scale 2·sensitivity/epsilon_answers, of monotone ones
            sensitivity/epsilon_answers. A run costs the sum of the two.
        max_above: after so many above answers it is over.
        monotone: True only if all query values move in one direction when a unit is added (or blanked), as
            counts do. Under replace_one none count as such: the dataset is asked for its adjacency first.
        under: as for `Client.open_session`.

    Raises ValueError for what is out of range, and for monotone=True on a dataset of another adjacency than
    add_remove or zero_out. Raises BudgetExceeded, and whatever else opening a session may raise: nothing was
    asked then. Raises NotTheRunner where the opening was answered with a session of before. Threads take
    turns.
    """

    def __init__(
        self,
        client: Client,
        dataset: str,
        *,
        threshold: float,
        sensitivity: float,
        epsilon_threshold: float,
        epsilon_answers: float,
        max_above: int,
        monotone: bool = False,
        **under: Unpack[Under],
    ) -> None:
        self._threshold = finite("threshold", threshold)
        moves = finite("sensitivity", sensitivity)
        if moves <= 0:
            raise ValueError(f"sensitivity is {sensitivity}: a number above 0 works")
        self._on_threshold = laplace(moves, epsilon_threshold, 1)
        self._on_query = laplace(moves, epsilon_answers, 1 if monotone else 2)
        document: dict[str, Any] = {
            "kind": "sparse_vector",
            "epsilon_threshold": epsilon_threshold,
            "epsilon_answers": epsilon_answers,
            "max_above": max_above,
        }
        if monotone:
            document["monotone"] = True
            _check_monotone(dataset, client.dataset(dataset)["adjacency"])
        self._over: OdometerError | None = None
        self._asking = threading.Lock()  # an answer drawn under one run's threshold never ends another run
        self.session: Session = client.open_session(dataset, document, **under)
        """The session: how many above answers it had and takes, and the receipt of the last charge."""
        self.session.check_runner()  # of another's session the threshold was drawn there
        self._noisy = self._fresh()

    def above(self, value: float) -> bool:
        """Whether the query's exact `value` is above the threshold, both with noise. Only this may go out.

        An above answer pays for the next run first. Where that does not fit, the answer is still given, since
        the run that it ends was paid, the session is closed, and the next call raises BudgetExceeded. After
        any other error nothing goes out and nothing more is asked: whether the query was above would show.

        Raises ValueError for what is no finite number, before any noise is drawn.
        """
        self.session.check_runner()
        with self._asking:
            return self._answered(value)

    def _answered(self, value: float) -> bool:
        if self._over is not None:
            raise self._over
        exact = finite("value", value)
        above = bool(self._on_query(exact) >= self._noisy)
        try:
            self.session.answer(above)
        except BudgetExceeded as refused:
            self._over = refused
            self.session.close()
            return above
        except OdometerError as error:
            self._over = error
            raise
        if above and self.session.open:
            self._noisy = self._fresh()
        return above

    def close(self) -> None:
        """Ask nothing more. What was paid stays paid."""
        self.session.close()

    def _fresh(self) -> float:
        """A threshold for one run."""
        return float(self._on_threshold(self._threshold))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a sparse vector is not copied or stored: two would go on with one paid run")


def _check_monotone(dataset: str, adjacency: str) -> None:
    """A replaced unit takes its part out of some queries and adds to others: half the noise is too little."""
    if adjacency not in ("add_remove", "zero_out"):
        raise ValueError(
            f"monotone=True halves the noise on queries, and dataset {dataset} has adjacency {adjacency}: a "
            "unit that is replaced makes some queries rise while others fall, so none count as monotone. "
            "monotone=False works here, monotone=True on a dataset of add_remove or zero_out. Nothing was "
            "charged"
        )
