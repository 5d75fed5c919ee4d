"""Interactive mechanisms, such as sparse vector: a session is charged as its public answers come."""

import os
from collections.abc import Mapping
from typing import Any, Final, NoReturn, Protocol

from odometer_client.base import NotTheRunner, OdometerError
from odometer_client.documents import Receipt, Reply
from odometer_client.keys import new_key

_UNSURE_MAX: Final = 1000


class Answering(Protocol):
    """What can answer and close a session: a client."""

    def answer_session(self, dataset: str, session_id: str, *, above: bool, run: int, key: str) -> Reply:
        """Charge what follows a public answer."""
        ...

    def close_session(self, dataset: str, session_id: str) -> Reply:
        """Take no more answers."""
        ...


class Session(Reply):
    """A session; `answer` keeps `open`, `run` and the rest up to date.

    One runner answers a session, the object that opened it, in its process: what it drew is in its memory
    alone, so that a session cannot be gone on with elsewhere. Any other object reads and closes it. After a
    crash, close it and open another one.
    """

    __slots__ = ("_client", "_keys", "_now", "_process", "_run", "receipt")

    def __init__(
        self,
        members: Mapping[str, Any],
        client: Answering,
        receipt: Receipt | None = None,
        *,
        runner: bool = False,
    ) -> None:
        """`runner`: this very object opened it, for certain, and so may answer."""
        super().__init__(members)
        self._client = client
        self._now = members
        self._run: int = members["run"] or 1  # of a closed one any: it takes no answer
        self._process = os.getpid() if runner else None
        self._keys: dict[tuple[int, bool], str] = {}
        """Of answers that raised, by run and answer: they may be recorded."""
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

        Its key is new, so that no answer of somebody else's is taken for it; after an error the same answer
        is asked again with the same key, and pays once. Raises BudgetExceeded when the next step does not
        fit: nothing is changed then, and the step that this answer ends was paid before. Raises NotTheRunner,
        SessionClosed, SessionMovedOn (somebody else answers it: close it, open another) and others.
        """
        self.check_runner()
        run = self._run
        # Taken out, so that of two threads that ask again at once one only has it.
        key = self._keys.pop((run, above), None) or f"session-{self.id}-{run}-{new_key()}"
        try:
            said = self._client.answer_session(self.dataset, self.id, above=above, run=run, key=key)
        except OdometerError:
            self._keys[run, above] = key
            raise
        self._now, self._run = said["session"], said["session"]["run"] or run + 1
        if said["receipt"] is not None:
            self.receipt = Receipt(said["receipt"])

    def check_runner(self) -> None:
        """Raise NotTheRunner unless this object opened the session, in this process."""
        if self._process == os.getpid():
            return
        if self._process is not None:
            why = "another process opened it, of which this one is a fork"
        elif self.receipt is not None:
            why = "it had been opened under the same key, by another process for all that is known"
        else:
            why = "it was looked up, and another object opened it"
        raise NotTheRunner(
            f"Session {self.id} of dataset {self.dataset!r} is not this object's to answer: {why}. What its "
            f"opener drew is not here, so nothing may go out. Unless its opener still runs, close it: "
            f"client.close_session({self.dataset!r}, {self.id!r}). Open another one, without a key or with a "
            "new one."
        )

    def close(self) -> None:
        """Take no more answers. What was paid stays paid; closing again changes nothing."""
        self._now = self._client.close_session(self.dataset, self.id)["session"]

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session is not copied or stored: two would answer one paid step")


class UnsureOpenings:
    """Keys that this client made to open sessions, and which came to an error: they may be recorded.

    A replay under one of them is of this client's own opening. Under a key that its caller made up it may
    be that of another process with the same key, also after a retry.
    """

    def __init__(self) -> None:
        self._keys: dict[tuple[int, str, str], None] = {}

    def add(self, dataset: str, key: str) -> None:
        """Remember one; the oldest of too many is forgotten, and a replay of it then refused."""
        while len(self._keys) >= _UNSURE_MAX:
            self._keys.pop(next(iter(self._keys)), None)
        self._keys[os.getpid(), dataset, key] = None

    def take(self, dataset: str, key: str) -> bool:
        """Whether it is one of them; then it is so no more, since one object answers a session."""
        return self._keys.pop((os.getpid(), dataset, key), "") is None
