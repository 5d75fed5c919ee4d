"""What scopes have spent, for life and within windows, as charges are added and holds settled. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from accountant.errors import LedgerCorrupt
from accountant.grid import Grid
from accountant.lexicon import Lexicon
from accountant.loss import Loss, total
from accountant.scopes import Touched, in_window, split
from accountant.windows import Window, window_name


@dataclass(frozen=True, slots=True)
class InWindow:
    """What a scope spent in one window: `name` says which. In a later one it has spent nothing yet."""

    name: str
    loss: Loss

    def encode(self, lexicon: Lexicon) -> str:
        """One line: the window's name, then the loss."""
        return f"{self.name} {lexicon.encode(self.loss)}"

    @classmethod
    def decode(cls, grid: Grid, line: str, lexicon: Lexicon) -> Self:
        """The inverse of `encode`. Raises ValueError for anything else."""
        name, _, loss = line.partition(" ")
        return cls(name, lexicon.decode(grid, loss))


@dataclass(frozen=True)
class Totals:
    """The totals that were asked for; `complete` when every scope that has any is among them.

    A total that is not there was not read: it is unknown, and never taken for nothing spent.
    """

    grid: Grid
    life: Mapping[str, Loss]
    windows: Mapping[str, InWindow]
    """By `scope@window`."""
    complete: bool = False

    def of(self, scope: str) -> Loss:
        """For life. Raises LedgerCorrupt when it was not read."""
        found = self.life.get(scope)
        if found is None:
            if not self.complete:
                raise LedgerCorrupt(f"the totals of {scope} were not read: nothing is decided without them")
            return Loss.zero(self.grid)
        return found

    def within(self, scope: str, window: Window, time: str) -> Loss:
        """In the window that `time` lies in. Raises LedgerCorrupt when it was not read."""
        found = self.windows.get(in_window(scope, window))
        if found is None:
            if not self.complete:
                raise LedgerCorrupt(f"the {window} of {scope} was not read: nothing is decided without it")
            return Loss.zero(self.grid)
        return found.loss if found.name == window_name(window, time) else Loss.zero(self.grid)

    def plus(self, added: Mapping[str, Loss], windows: Iterable[tuple[str, Window]], time: str) -> "Totals":
        """With `added` to its scopes, and to the windows of these that are counted; all move together."""
        life, within = dict(self.life), dict(self.windows)
        for scope, loss in added.items():
            life[scope] = self.of(scope).plus(loss)
        for scope, window in windows:
            spent = self.within(scope, window, time).plus(added[scope])
            within[in_window(scope, window)] = InWindow(window_name(window, time), spent)
        return Totals(self.grid, life, within, self.complete)

    def minus(self, taken: Mapping[str, Loss], counted: Mapping[str, str]) -> "Totals":
        """With `taken` out of its scopes, and out of the windows that it was counted in, where they last."""
        life, within = dict(self.life), dict(self.windows)
        for scope, loss in taken.items():
            life[scope] = self.of(scope).minus(loss)
        for key, name in counted.items():
            now = within.get(key)
            if now is not None and now.name == name:
                within[key] = InWindow(name, now.loss.minus(taken[key.rpartition("@")[0]]))
        return Totals(self.grid, life, within, self.complete)


def added(
    grid: Grid, composition: str, touched: Touched, kinds: Sequence[str], losses: Sequence[Loss]
) -> dict[str, Loss]:
    """What each scope gains by a charge: all of it, but a kind of mechanism its own part."""
    whole = losses[0] if len(losses) == 1 else total(grid, losses)
    gained = dict.fromkeys(touched.scopes(composition), whole)
    if composition != "by_unit":
        for kind, loss in zip(kinds, losses, strict=True):
            scope = f"mechanism/{kind}"
            gained[scope] = gained[scope].plus(loss) if scope in gained else loss
    return gained


def counted_windows(
    scopes: Iterable[str], windows: Mapping[str, tuple[Window, ...]]
) -> list[tuple[str, Window]]:
    """The windows to count for `scopes`, given those that budgets need by kind of scope."""
    if not windows:
        return []
    return [(scope, window) for scope in scopes for window in windows.get(split(scope)[0], ())]
