"""The totals of scopes, for life and within windows, and how charges and settlements change them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from odometer_accountant.errors import LedgerCorrupt
from odometer_accountant.ledger.loss_dictionary import LossDictionary
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss, total
from odometer_accountant.scopes import AffectedScopes, in_window, split
from odometer_accountant.windows import Window, window_name

SESSION: Final = "~"
"""The start of the key of an open session. It sorts after every window: a session reaches all later ones."""


@dataclass(frozen=True)
class Lasting:
    """How long a charge may go on releasing. It counts in every window until then."""

    expires: str | None = None
    """Only for a hold: the time from which it can no longer be settled, a ledger timestamp."""
    session: int | None = None
    """Only for a step of a session, which lasts until that ends: the number of the entry that opened it."""

    def key(self, window: Window) -> str:
        """The key of the open part in a count of this kind of window: the last window that it reaches."""
        if self.session is not None:
            return f"{SESSION}{self.session}"
        return window_name(window, self.expires or "")


@dataclass(frozen=True, slots=True)
class InWindow:
    """The count of a scope in the window `name`. Its open part counts in later windows too."""

    name: str
    loss: Loss
    open: Mapping[str, Loss] = field(default_factory=dict)
    """The open part, included in `loss`: holds by the last window that they reach, a session by its key."""

    def encode(self, loss_dictionary: LossDictionary) -> str:
        """One line: the window's name, then the loss, then its open parts."""
        parts = [f";{key} {loss_dictionary.encode(loss)}" for key, loss in sorted(self.open.items())]
        return f"{self.name} {loss_dictionary.encode(self.loss)}{''.join(parts)}"

    @classmethod
    def decode(cls, grid: Grid, line: str, loss_dictionary: LossDictionary) -> Self:
        """The inverse of `encode`. Raises ValueError for anything else."""
        first, *others = (part.partition(" ") for part in line.split(";"))
        still = {key: loss_dictionary.decode(grid, loss) for key, _, loss in others}
        if len(still) != len(others) or any(not key or loss.is_zero for key, loss in still.items()):
            raise ValueError(f"expected the open parts of a window, got {line[:80]!r}")
        return cls(first[0], loss_dictionary.decode(grid, first[2]), still)

    def at(self, name: str) -> "InWindow":
        """The count in the window `name`: a later one starts with the open parts that reach it."""
        if name <= self.name:
            return self
        still = {key: loss for key, loss in self.open.items() if key >= name}
        return InWindow(name, total(self.loss.grid, still.values()), still)

    def plus(self, loss: Loss, key: str | None = None) -> "InWindow":
        """With another loss, which is open and reaches later windows where it has a key."""
        if key is None or loss.is_zero:
            return InWindow(self.name, self.loss.plus(loss), self.open)
        before = self.open.get(key)
        still = {**self.open, key: loss if before is None else before.plus(loss)}
        return InWindow(self.name, self.loss.plus(loss), still)

    def settled(self, held: Loss, unused: Loss, key: str) -> "InWindow":
        """Without the unused part of a hold, and with the rest of it no longer open."""
        left = self.open.get(key, Loss.zero(held.grid)).minus(held)
        return InWindow(self.name, self.loss.minus(unused), self._open_but(key, left))

    def ended(self, key: str) -> "InWindow":
        """With the part of that key no longer open: it stays counted in this window."""
        return InWindow(self.name, self.loss, self._open_but(key, None))

    def _open_but(self, key: str, left: Loss | None) -> dict[str, Loss]:
        still = {other: loss for other, loss in self.open.items() if other != key}
        return still if left is None or left.is_zero else {**still, key: left}


@dataclass(frozen=True)
class Totals:
    """The totals that were asked for; `complete` when they include every scope that has one.

    A missing total was not read: it is unknown, and is never taken for zero.
    """

    grid: Grid
    life: Mapping[str, Loss]
    windows: Mapping[str, InWindow]
    """By `scope@window`."""
    complete: bool = False

    def of(self, scope: str) -> Loss:
        """The total of a scope for life. Raises LedgerCorrupt when it was not read."""
        found = self.life.get(scope)
        if found is None:
            if not self.complete:
                raise LedgerCorrupt(f"the totals of {scope} were not read: nothing is decided without them")
            return Loss.zero(self.grid)
        return found

    def within(self, scope: str, window: Window, time: str) -> Loss:
        """The total of a scope in the window of `time`. Raises LedgerCorrupt when it was not read."""
        return self._window(scope, window, time).loss

    def _window(self, scope: str, window: Window, time: str) -> InWindow:
        found = self.windows.get(in_window(scope, window))
        if found is None:
            if not self.complete:
                raise LedgerCorrupt(f"the {window} of {scope} was not read: nothing is decided without it")
            return InWindow(window_name(window, time), Loss.zero(self.grid))
        return found.at(window_name(window, time))

    def plus(
        self,
        added: Mapping[str, Loss],
        windows: Iterable[tuple[str, Window]],
        time: str,
        lasting: Lasting | None = None,
    ) -> "Totals":
        """With `added` in its scopes, and in the counted windows of these.

        `lasting`: until when the charge goes on releasing. Later windows then start with it.
        """
        life, within = dict(self.life), dict(self.windows)
        sums: dict[tuple[int, int], Loss] = {}
        for scope, loss in added.items():
            before = self.of(scope)
            # A dataset, its only principal and its only mechanism share one total: it is added up once.
            pair = id(before), id(loss)
            if pair not in sums:
                sums[pair] = before.plus(loss)
            life[scope] = sums[pair]
        for scope, window in windows:
            key = None if lasting is None else lasting.key(window)
            within[in_window(scope, window)] = self._window(scope, window, time).plus(added[scope], key)
        return Totals(self.grid, life, within, self.complete)

    def carried(
        self,
        added: Mapping[str, Loss],
        windows: Iterable[tuple[str, Window]],
        time: str,
        lasting: Lasting,
        counted: Mapping[str, str],
    ) -> "Totals":
        """With an open hold or session counted in these windows too, and in later ones that it reaches.

        `counted` names the windows that count it already, by scope@window: there it only becomes open.
        """
        within = dict(self.windows)
        for scope, window in windows:
            key, now = in_window(scope, window), self._window(scope, window, time)
            if lasting.key(window) < now.name:
                continue  # it ended in an earlier window
            more = now.plus(added[scope], lasting.key(window))
            within[key] = InWindow(now.name, now.loss, more.open) if counted.get(key) == now.name else more
        return Totals(self.grid, self.life, within, self.complete)

    def settled(
        self,
        held: Mapping[str, Loss],
        unused: Mapping[str, Loss],
        windows: Iterable[tuple[str, Window]],
        time: str,
        expires: str,
    ) -> "Totals":
        """Without the unused part of a hold in its scopes and windows, and with the hold no longer open."""
        life, within, lasting = dict(self.life), dict(self.windows), Lasting(expires)
        for scope, loss in unused.items():
            life[scope] = self.of(scope).minus(loss)
        for scope, window in windows:
            now = self._window(scope, window, time)
            key = lasting.key(window)
            within[in_window(scope, window)] = now.settled(held[scope], unused[scope], key)
        return Totals(self.grid, life, within, self.complete)

    def ended(self, session: int, windows: Iterable[tuple[str, Window]], time: str) -> "Totals":
        """With a session no longer open: it counts in the windows of `time`, and in no later ones."""
        within = dict(self.windows)
        for scope, window in windows:
            key = Lasting(session=session).key(window)
            within[in_window(scope, window)] = self._window(scope, window, time).ended(key)
        return Totals(self.grid, self.life, within, self.complete)

    def minus(self, taken: Mapping[str, Loss], counted: Mapping[str, str]) -> "Totals":
        """Without `taken` in its scopes, and in the windows that counted it, if they still last.

        For the settlement of a hold that windows do not count as open: so were all holds up to format 3.
        """
        life, within = dict(self.life), dict(self.windows)
        for scope, loss in taken.items():
            life[scope] = self.of(scope).minus(loss)
        for key, name in counted.items():
            now = within.get(key)
            if now is not None and now.name == name:
                less = now.loss.minus(taken[key.rpartition("@")[0]])
                within[key] = InWindow(name, less, now.open)
        return Totals(self.grid, life, within, self.complete)


def added(
    grid: Grid, composition: str, affected: AffectedScopes, kinds: Sequence[str], losses: Sequence[Loss]
) -> dict[str, Loss]:
    """The loss that a charge adds to each scope: its sum; to a kind of mechanism, the part of that kind."""
    whole = losses[0] if len(losses) == 1 else total(grid, losses)
    gained = dict.fromkeys(affected.scopes(composition), whole)
    if composition != "by_unit":
        for kind, loss in zip(kinds, losses, strict=True):
            scope = f"mechanism/{kind}"
            gained[scope] = gained[scope].plus(loss) if scope in gained else loss
    return gained


def counted_windows(
    scopes: Iterable[str], windows: Mapping[str, tuple[Window, ...]]
) -> list[tuple[str, Window]]:
    """The windows to count for `scopes`, from those that budgets need by kind of scope."""
    if not windows:
        return []
    return [(scope, window) for scope in scopes for window in windows.get(split(scope)[0], ())]
