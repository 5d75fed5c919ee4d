"""Interactive mechanisms, such as sparse vector: a session is charged as its public answers come."""

from collections.abc import Mapping
from typing import Any, Protocol

from odometer_client.documents import Document, Receipt


class Answering(Protocol):
    """What can answer and close a session: a client."""

    def answer_session(self, dataset: str, session_id: str, *, above: bool, run: int, key: str) -> Document:
        """Charge what follows a public answer."""
        ...

    def close_session(self, dataset: str, session_id: str) -> Document:
        """Take no more answers."""
        ...


class Session(Document):
    """A session as it was opened; `answer` keeps `open`, `run` and the rest up to date.

    One runner answers a session: what it drew is in its memory alone, so that a session cannot be gone on
    with elsewhere. After a crash, open another one.
    """

    __slots__ = ("_client", "_now", "_run", "receipt")

    def __init__(self, members: Mapping[str, Any], client: Answering, receipt: Receipt | None = None) -> None:
        super().__init__(members)
        self._client = client
        self._now = members
        self._run: int = members["run"] or 1  # of a closed one any: it takes no answer
        self.receipt = receipt
        """Of the last charge; None where this client made none."""

    @property
    def id(self) -> str:
        """What the dataset calls it."""
        return str(self["id"])

    @property
    def dataset(self) -> str:
        return str(self["dataset"])

    @property
    def open(self) -> bool:
        """Whether it took answers when last heard of."""
        return bool(self._now["open"])

    @property
    def above(self) -> int:
        """Above answers so far, once it is closed in all."""
        return int(self._now["above"])

    @property
    def above_left(self) -> int:
        """How many more above answers it takes."""
        return int(self._now["above_left"])

    @property
    def run(self) -> int | None:
        """Which paid step it is in, from 1; None once it is closed."""
        number = self._now["run"]
        return None if number is None else int(number)

    def answer(self, above: bool) -> None:
        """Charge what follows a public answer; the answer may go out once this returns.

        Its key is made of the session and the run, so that asking again after a lost answer pays once. Raises
        BudgetExceeded when the next step does not fit: nothing is changed then, and the step that this answer
        ends was paid before. Raises SessionClosed, SessionMovedOn (somebody else answers it) and others.
        """
        run = self._run
        key = f"session-{self.id}-{run}"
        said = self._client.answer_session(self.dataset, self.id, above=above, run=run, key=key)
        self._now, self._run = said["session"], said["session"]["run"] or run + 1
        if said["receipt"] is not None:
            self.receipt = Receipt(said["receipt"])

    def close(self) -> None:
        """Take no more answers. What was paid stays paid; closing again changes nothing."""
        self._now = self._client.close_session(self.dataset, self.id)["session"]
