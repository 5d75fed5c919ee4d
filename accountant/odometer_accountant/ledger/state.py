"""The state that folds out of a stream's entries, and what of it is stored beside them."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from odometer_accountant.errors import LedgerCorrupt
from odometer_accountant.ledger.active_budgets import ActiveBudget
from odometer_accountant.ledger.blobs import (
    CONFIG_BLOB,
    HOLDS_BLOB,
    LEXICON_BLOB,
    SESSIONS_BLOB,
    TOTALS,
    WINDOWS,
    scope_blob,
    window_blob,
)
from odometer_accountant.ledger.dataset import BudgetVersion, Dataset
from odometer_accountant.ledger.entries import FORMAT, FORMATS, MARK, canonical, check_format, entry_hash
from odometer_accountant.ledger.loss_dictionary import LossDictionary
from odometer_accountant.ledger.session_state import Sessions, SessionState, dump, ended, load, moved
from odometer_accountant.ledger.totals import Lasting, Totals, added, counted_windows
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss, total
from odometer_accountant.once import once
from odometer_accountant.scopes import DATASET_SCOPE, AffectedScopes, in_window, shard_stream, split
from odometer_accountant.stores import EMPTY_HEAD, Head
from odometer_accountant.windows import Window, window_name

CHECKPOINT_EVERY: Final = 128
"""Every so many entries one also carries the dataset's totals: history without folding everything."""
LARGEST_SAID: Final = 4
"""From this format on it is said which limit of a budget was the largest in force."""
WINDOWS_REACHED: Final = 4
"""From this format on what is open counts in every window that it reaches."""


@dataclass(frozen=True)
class AcceptedLoss:
    """A history that was lost, and when a person decided to go on without it."""

    lost: Head
    time: str


@dataclass(frozen=True)
class State:
    """A stream as its entries fold up to `head`. `totals` holds the scopes that were asked for."""

    head: Head
    time: str
    dataset: Dataset
    budgets: Mapping[str, BudgetVersion]
    totals: Totals
    closed: bool = False
    charges: int = 0
    partitions: tuple[str, ...] = ()
    holds: Mapping[int, str] = field(default_factory=dict)
    """Open holds: the number of the entry, and when it expires."""
    sessions: Mapping[int, SessionState] = field(default_factory=dict)
    """Open sessions, by the number of the entry that opened them."""
    frozen: Head | None = None
    """The end of a history that was seen and is gone: until a person decides, nothing is admitted."""
    accepted_loss: "AcceptedLoss | None" = None
    """The last such history that a person has decided to go on without."""
    shard: int | None = None
    """Which part of a dataset's unit odometers this is."""
    opened: tuple[int, ...] = ()
    """Of a dataset by unit, the shards that were opened: one that is missing was lost."""
    reached: Mapping[str, tuple[Window, ...]] = field(default_factory=dict)
    """The windows, by kind of scope, whose counts say what of them is open."""
    version: int = FORMAT
    """The latest format of its entries, at least the usual one."""
    lexicon: LossDictionary = field(default_factory=LossDictionary)
    """What totals are stored as multiples of: in shards alone."""

    @once
    def limits(self) -> tuple[ActiveBudget, ...]:
        """The budgets, compiled."""
        return tuple(ActiveBudget.of(entry, self.dataset.grid) for entry in self.budgets.values())

    @once
    def windows(self) -> Mapping[str, tuple[Window, ...]]:
        """The windows that budgets need counted, by kind of scope."""
        found: dict[str, list[Window]] = {}
        for limit in self.limits:
            kinds = [limit.kind]
            if self.dataset.composition == "by_partition" and limit.kind in ("dataset", "partition"):
                kinds = ["dataset", "partition"]
            for kind in kinds if limit.window else ():
                if limit.window and limit.window not in found.setdefault(kind, []):
                    found[kind].append(limit.window)
        return {kind: tuple(sorted(windows)) for kind, windows in found.items()}

    @once
    def standing(self) -> tuple[str, ...]:
        """Names of the blobs that are always read: what budgets of the dataset and of named scopes count."""
        scopes = [DATASET_SCOPE]
        scopes += [f"partition/{name}" for name in self.partitions]
        scopes += [f"{limit.kind}/{limit.name}" for limit in self.limits if limit.name not in ("", "*")]
        scopes += [team for limit in self.limits for team in limit.shares]
        return self.blob_names(dict.fromkeys(scopes))

    def blob_names(self, scopes: Iterable[str]) -> tuple[str, ...]:
        """Names of the blobs that hold the counts of `scopes`, for life and in the windows that matter."""
        names = list(scopes)
        within = counted_windows(names, self.windows)
        return (
            *(scope_blob(scope) for scope in names),
            *(window_blob(scope, window) for scope, window in within),
        )

    @property
    def must_carry(self) -> bool:
        """Whether something is open that windows do not count as open: it must be counted first."""
        return self.reached != self.windows and bool(self.holds or self.sessions)

    @property
    def composition(self) -> str:
        return self.dataset.composition

    @property
    def stream(self) -> str:
        name = self.dataset.name
        return name if self.shard is None else shard_stream(name, self.shard)

    @property
    def spent(self) -> Loss:
        """The dataset's own totals: of a partitioned dataset, those that are part of every partition."""
        return self.totals.of(DATASET_SCOPE)

    def scopes(self, touched: AffectedScopes, kinds: Iterable[str]) -> tuple[str, ...]:
        """Every scope whose odometer a charge moves."""
        own = touched.scopes(self.composition)
        if self.composition == "by_unit":
            return own
        return (*own, *dict.fromkeys(f"mechanism/{kind}" for kind in kinds))

    def moved(self, head: Head, time: str, totals: Totals, **changes: Any) -> "State":
        """The state after a charge or a settlement, which leave the compiled budgets as they are."""
        after = object.__new__(State)  # `replace` costs as much as a sum, and forgets what is compiled
        after.__dict__.update(self.__dict__, head=head, time=time, totals=totals, **changes)
        return after

    def _configured(self) -> tuple[object, ...]:
        return (
            self.budgets,
            self.closed,
            self.partitions,
            self.opened,
            self.frozen,
            self.accepted_loss,
            self.reached,
            self.version,
        )

    def config(self) -> bytes:
        """Everything but head, totals and holds, as the store keeps it beside the entries."""
        return self._config

    @once
    def _config(self) -> bytes:
        document: dict[str, Any] = {
            "dataset": self.dataset.model_dump(mode="json"),
            "budgets": {name: entry.kept() for name, entry in self.budgets.items()},
            "closed": self.closed,
            "partitions": list(self.partitions),
            "shard": self.shard,
        }
        if self.version > FORMAT:  # whoever reads the state alone sees which version it takes
            document["format"] = self.version
        if self.reached:
            document["reached"] = {kind: list(windows) for kind, windows in self.reached.items()}
        if self.opened:
            document["opened"] = list(self.opened)
        if self.frozen is not None:
            document["frozen"] = [self.frozen.sequence, self.frozen.hash]
        if self.accepted_loss is not None:
            lost = self.accepted_loss.lost
            document["amnesty"] = [lost.sequence, lost.hash, self.accepted_loss.time]
        return canonical(document)

    @classmethod
    def restore(
        cls,
        head: Head,
        time: str,
        config: bytes,
        holds: bytes | None,
        lexicon: bytes | None = None,
        sessions: bytes | None = None,
    ) -> Self:
        """The inverse of `config`, without any totals. Raises LedgerCorrupt when it cannot be read."""
        try:
            document = json.loads(config)
            check_format(document["dataset"]["name"], document.get("format"))
            dataset = Dataset.model_validate_json(json.dumps(document["dataset"]))
            budgets = {name: BudgetVersion.parse(entry) for name, entry in document["budgets"].items()}
            return cls(
                head,
                time,
                dataset,
                budgets,
                Totals(dataset.grid, {}, {}),
                document["closed"],
                partitions=tuple(document.get("partitions", ())),
                holds=read_holds(holds),
                sessions=load(sessions),
                frozen=_head(document.get("frozen")),
                accepted_loss=_accepted_loss(document.get("amnesty")),
                shard=document.get("shard"),
                reached={kind: tuple(found) for kind, found in document.get("reached", {}).items()},
                version=document.get("format", FORMAT),
                opened=tuple(document.get("opened", ())),
                lexicon=_read_lexicon(dataset.grid, lexicon),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LedgerCorrupt(f"the stored configuration of a dataset cannot be read: {error}") from error

    def blobs(self, before: "State | None" = None) -> dict[str, bytes]:
        """What is stored beside the entries; only what differs from `before`, where given."""
        old = before.totals if before else Totals(self.dataset.grid, {}, {})
        parts = before.partitions if before else ()
        # Totals of a new partition are stored though they are zero: that they are missing is then a fault.
        new = {f"partition/{name}" for name in self.partitions if name not in parts}
        found = {
            TOTALS + scope: self.lexicon.encode(loss).encode("ascii")
            for scope, loss in self.totals.life.items()
            if old.life.get(scope) is not loss or scope in new
        }
        found |= {
            WINDOWS + key: within.encode(self.lexicon).encode("ascii")
            for key, within in self.totals.windows.items()
            if old.windows.get(key) is not within
        }
        if before is None or before.holds is not self.holds:
            found[HOLDS_BLOB] = canonical({str(number): expires for number, expires in self.holds.items()})
        if (before is None and self.sessions) or (before and before.sessions is not self.sessions):
            found[SESSIONS_BLOB] = canonical(dump(self.sessions))
        if self.shard is not None and (before is None or before.lexicon is not self.lexicon):
            found[LEXICON_BLOB] = canonical({"losses": self.lexicon.dump()})
        if before is None or self._configured() != before._configured():
            found[CONFIG_BLOB] = self.config()
        return found


def _head(pair: Sequence[Any] | None) -> Head | None:
    return None if pair is None else Head(int(pair[0]), str(pair[1]))


def _accepted_loss(parts: Sequence[Any] | None) -> AcceptedLoss | None:
    return None if parts is None else AcceptedLoss(Head(int(parts[0]), str(parts[1])), str(parts[2]))


def read_holds(blob: bytes | None) -> dict[int, str]:
    """The open holds that a blob lists: number of the entry, and when it expires."""
    return {} if blob is None else {int(number): str(end) for number, end in json.loads(blob).items()}


def _read_lexicon(grid: Grid, blob: bytes | None) -> LossDictionary:
    return LossDictionary() if blob is None else LossDictionary.load(grid, json.loads(blob)["losses"])


def fold(rows: Iterable[tuple[str, bytes]]) -> "State | None":
    """The state after all entries, from their (hash, bytes) in order; None without any.

    Raises LedgerCorrupt where the chain or an entry does not hold.
    """
    state: State | None = None
    for digest, body in rows:
        state = apply(state, digest, body)
    return state


def apply(state: "State | None", digest: str, body: bytes) -> State:
    """The state after one more entry. Raises LedgerCorrupt when it does not follow."""
    head = state.head if state else EMPTY_HEAD
    at = head.sequence + 1
    if entry_hash(body) != digest:
        raise LedgerCorrupt(
            f"entry {at}: its bytes do not have the hash that is stored with them", sequence=at
        )
    try:
        entry = json.loads(body)
        check_format(f"entry {at}: the ledger", entry["v"])
        if entry["v"] not in FORMATS or entry["seq"] != at or entry["prev"] != head.hash:
            raise LedgerCorrupt(f"entry {at}: it does not follow the entry before it", sequence=at)
        if state is not None and entry["time"] < state.time:
            raise LedgerCorrupt(f"entry {at}: its time lies before the entry before it", sequence=at)
        after = _apply(state, Head(at, digest), entry)
        return replace(after, version=entry["v"]) if entry["v"] > after.version else after
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise LedgerCorrupt(f"entry {at} cannot be read: {error!r}", sequence=at) from error


def _apply(state: "State | None", head: Head, entry: Mapping[str, Any]) -> State:
    kind = entry["type"]
    if (kind == "opened") != (state is None):
        raise ValueError(f"a ledger starts with `opened`, and only starts with it, got {kind!r}")
    if state is None:
        return _opened(head, entry)
    if kind in ("charged", "held"):
        return apply_charge(state, head, entry)
    if kind == "settled":
        return _settled(state, head, entry)
    change = _CHANGES.get(kind)
    if change is None:
        raise ValueError(f"unknown type of entry {kind!r}")
    return change(replace(state, head=head, time=entry["time"]), entry)


def _budget_set(state: State, entry: Mapping[str, Any]) -> State:
    before = state.budgets.get(entry["name"])
    covered = before is not None and covers_any(state, before, state.head.sequence - 1)
    told = "largest" in entry or before is None
    budget = BudgetVersion.parse(entry["entry"]).after(before, covered=covered, told=told)
    if "largest" in entry and entry["largest"] != repr(budget.largest):
        raise ValueError(f"the largest limit in force was {budget.largest!r}, it says {entry['largest']}")
    changed = {**state.budgets, entry["name"]: budget}
    return replace(state, budgets=dict(sorted(changed.items())))  # as every stored form has them


def covers_any(state: State, budget: BudgetVersion, last: int) -> bool:
    """Whether a budget may cover a charge among the entries up to number `last`."""
    return last > budget.since if budget.since else something_charged(state)


def _recounted(state: State, _: Mapping[str, Any]) -> State:
    """All entries were counted again: what those of earlier formats come to is known."""
    budgets = {name: replace(entry, told=entry.largest is not None) for name, entry in state.budgets.items()}
    return replace(state, budgets=budgets)


def something_charged(state: State) -> bool:
    """Whether a charge may be on the ledger; of a dataset by unit, whether one has begun to be."""
    if state.composition == "by_unit":
        return bool(state.opened)
    scopes = [DATASET_SCOPE, *(f"partition/{name}" for name in state.partitions)]
    return not all(state.totals.of(scope).is_zero for scope in scopes)


def _derived(state: State, entry: Mapping[str, Any]) -> State:
    if not 0 < int(entry["command"]["parent"]) < state.head.sequence:
        raise ValueError("it comes of no earlier entry")
    return state


def _carried(state: State, entry: Mapping[str, Any]) -> State:
    """What is open counts from here on in every window that it reaches: nothing said so before."""
    totals, time = state.totals, entry["time"]
    for held in entry["holds"].values():
        totals = _open_in(state, totals, held, Lasting(held["expires"]), time)
    for number, session in entry["sessions"].items():
        totals = _open_in(state, totals, session, Lasting(session=int(number)), time)
    return replace(state, totals=totals, reached=state.windows)


def _open_in(state: State, totals: Totals, about: Mapping[str, Any], lasting: Lasting, time: str) -> Totals:
    """With what is open counted in the windows that did not count it as open."""
    grid, touched = state.dataset.grid, touched_by(about)
    scopes = touched.scopes(state.composition)
    gained = dict.fromkeys(scopes, total(grid, entry_losses(grid, about)))
    counted, over = about.get("windows", {}), lasting.expires is not None and lasting.expires < time
    new = [
        (scope, window)
        for scope, window in counted_windows(scopes, state.windows)
        if window not in state.reached.get(split(scope)[0], ())
        # What expired counts on in the windows that it was made under, and in no newer ones.
        and not (over and in_window(scope, window) not in counted)
    ]
    return totals.carried(gained, new, time, lasting, counted)


def _session_closed(state: State, entry: Mapping[str, Any]) -> State:
    after = replace(state, sessions=ended(state.sessions, entry["session"]))
    if "opened" not in entry:
        return after
    windows = counted_windows(touched_by(entry["opened"]).scopes(state.composition), state.windows)
    return replace(after, totals=state.totals.ended(entry["session"], windows, entry["time"]))


_CHANGES: Final[dict[str, Callable[[State, Mapping[str, Any]], State]]] = {
    "budget_set": _budget_set,
    "partitions_added": lambda state, entry: _with_partitions(state, entry["partitions"]),
    "shard_opened": lambda state, entry: replace(state, opened=(*state.opened, int(entry["shard"]))),
    # What is stored beside the entries was written anew: see odometer_accountant.ledger.adoption.
    "recounted": _recounted,
    # A shard has its dataset's budgets.
    "synced": lambda state, entry: replace(state, budgets=_budgets(entry["budgets"]), closed=entry["closed"]),
    "derived": _derived,
    "session_closed": _session_closed,
    "carried": _carried,
    "closed": lambda state, _: replace(state, closed=True),
    "frozen": lambda state, entry: replace(state, frozen=_head(entry["seen"])),
    "unfrozen": lambda state, entry: replace(
        state, frozen=None, accepted_loss=_accepted_loss([*entry["seen"], entry["time"]])
    ),
}
"""What an entry that moves no total for life changes of a state, which has its head and time already."""


def _budgets(documents: Mapping[str, Any]) -> dict[str, BudgetVersion]:
    return {name: BudgetVersion.parse(item) for name, item in documents.items()}


def _opened(head: Head, entry: Mapping[str, Any]) -> State:
    dataset = Dataset.model_validate_json(json.dumps(entry["dataset"]))
    # Totals from the start: that they are missing can then never mean that nothing was spent.
    totals = Totals(dataset.grid, {DATASET_SCOPE: Loss.zero(dataset.grid)}, {}, complete=True)
    budgets = _budgets(entry["budgets"])
    state = State(head, entry["time"], dataset, budgets, totals, shard=entry.get("shard"))
    return _with_partitions(state, entry.get("partitions", ()))


def _with_partitions(state: State, names: Iterable[str]) -> State:
    zero = Loss.zero(state.dataset.grid)
    new = [name for name in names if name not in state.partitions]
    life = {**state.totals.life, **{f"partition/{name}": zero for name in new}}
    return replace(state, partitions=(*state.partitions, *new), totals=replace(state.totals, life=life))


def touched_by(entry: Mapping[str, Any]) -> AffectedScopes:
    """Whose odometers a `charged` or `held` entry moves."""
    command = entry["command"]
    parts = command.get("partitions", ())
    return AffectedScopes(
        entry["principal"],
        entry.get("team"),
        command["group"]["name"] if "group" in command else None,
        () if parts == "all" else tuple(parts),
        tuple(command.get("units", ())),
    )


def kinds_of(entry: Mapping[str, Any]) -> list[str]:
    """The kind of mechanism of each charge of an entry."""
    return [item["mechanism"]["kind"] for item in entry["command"]["charges"]]


def entry_losses(grid: Grid, entry: Mapping[str, Any]) -> list[Loss]:
    """The losses of an entry, one per charge. Raises KeyError or ValueError for what has none."""
    return [Loss.decode(grid, line) for line in entry["losses"]]


def charge_totals(
    state: State,
    touched: AffectedScopes,
    kinds: Sequence[str],
    losses: Sequence[Loss],
    time: str,
    lasting: Lasting | None = None,
    last_of: int | None = None,
) -> Totals:
    """The totals after a charge that goes on releasing `lasting`, or is the last of session `last_of`."""
    gained = added(state.dataset.grid, state.composition, touched, kinds, losses)
    windows = counted_windows(gained, state.windows)
    totals = state.totals.plus(gained, windows, time, lasting)
    return totals if last_of is None else totals.ended(last_of, windows, time)


def charge_changes(state: State, losses: Sequence[Loss]) -> dict[str, Any]:
    """What a charge changes of a state beside its totals."""
    changes: dict[str, Any] = {"charges": state.charges + 1}
    if state.shard is not None:
        changes["lexicon"] = state.lexicon.learned(total(state.dataset.grid, losses))
    return changes


def reaching(state: State, version: int = WINDOWS_REACHED) -> State:
    """The state after an entry of that format, whose windows say what of them is open."""
    if state.reached == state.windows and state.version >= version:
        return state
    return replace(state, reached=state.windows, version=max(state.version, version))


def step_lasts(step: Mapping[str, Any], number: int) -> tuple[Lasting | None, int | None]:
    """(how long a step of a session goes on releasing, the session that it is the last one of).

    `number` is that of the step's own entry.
    """
    if "open" in step:
        return Lasting(session=number), None
    return (None, step["id"]) if step["last"] else (Lasting(session=step["id"]), None)


def session_moved(state: State, head: Head, by: str, step: Mapping[str, Any]) -> Sessions:
    """The open sessions after an entry that opens one, or charges an answer of one. Raises ValueError."""
    return moved(state.sessions, head.sequence, head.hash[:MARK], by, step)


def counted_in(state: State, touched: AffectedScopes, time: str) -> dict[str, str]:
    """The windows that a charge is counted in: what a hold needs to know when it is settled."""
    scopes = touched.scopes(state.composition)
    return {
        in_window(scope, window): window_name(window, time)
        for scope, window in counted_windows(scopes, state.windows)
    }


def apply_charge(state: State, head: Head, entry: Mapping[str, Any]) -> State:
    """The state after a `charged` or `held` entry. Raises ValueError when it does not hold."""
    losses, kinds = entry_losses(state.dataset.grid, entry), kinds_of(entry)
    if len(kinds) != len(losses):
        raise ValueError(f"{len(kinds)} charges but {len(losses)} losses")
    touched, time = touched_by(entry), entry["time"]
    held, step = entry["type"] == "held", entry["command"].get("session")
    lasting, last_of = None, None
    if entry["v"] >= WINDOWS_REACHED and state.windows and (held or step is not None):
        lasting = Lasting(entry["expires"]) if held else None
        if step is not None:
            lasting, last_of = step_lasts(step, head.sequence)
        state = reaching(state, entry["v"])
    totals = charge_totals(state, touched, kinds, losses, time, lasting, last_of)
    if head.sequence % CHECKPOINT_EVERY == 0 and entry.get("totals") != totals.of(DATASET_SCOPE).encode():
        raise ValueError("its checkpoint differs from the sum of the entries before it")
    changes = charge_changes(state, losses)
    if not held:
        if step is not None:
            changes["sessions"] = session_moved(state, head, entry.get("by", entry["principal"]), step)
        return state.moved(head, time, totals, **changes)
    if entry["windows"] != counted_in(state, touched, time):
        raise ValueError("it says that it was counted in other windows than it was")
    holds = {**open_holds(state.holds, time), head.sequence: entry["expires"]}
    return state.moved(head, time, totals, holds=holds, **changes)


def open_holds(holds: Mapping[int, str], time: str) -> dict[int, str]:
    """Those that can still be settled at `time`."""
    return {number: expires for number, expires in holds.items() if expires >= time}


def refund(grid: Grid, held: Mapping[str, Any], used: Sequence[Loss], composition: str) -> dict[str, Loss]:
    """What each scope of a `held` entry gets back. Raises ValueError when more was used than was held."""
    losses = entry_losses(grid, held)
    back = [loss.minus(part) for loss, part in zip(losses, used, strict=True)]
    return added(grid, composition, touched_by(held), kinds_of(held), back)


def settle_totals(state: State, held: Mapping[str, Any], used: Sequence[Loss], time: str) -> Totals:
    """The totals at `time` after a hold is settled for the losses `used`."""
    grid, composition = state.dataset.grid, state.composition
    back = refund(grid, held, used, composition)
    if "expires" not in held:
        return state.totals.minus(back, held["windows"])
    whole = added(grid, composition, touched_by(held), kinds_of(held), entry_losses(grid, held))
    return state.totals.settled(whole, back, counted_windows(whole, state.windows), time, held["expires"])


def _settled(state: State, head: Head, entry: Mapping[str, Any]) -> State:
    if entry["hold"] not in state.holds:
        raise ValueError(f"it settles hold {entry['hold']}, which is not open")
    if state.holds[entry["hold"]] < entry["time"]:
        raise ValueError(f"it settles hold {entry['hold']}, which had expired")
    totals = settle_totals(state, entry["held"], entry_losses(state.dataset.grid, entry), entry["time"])
    if head.sequence % CHECKPOINT_EVERY == 0 and entry.get("totals") != totals.of(DATASET_SCOPE).encode():
        raise ValueError("its checkpoint differs from the sum of the entries before it")
    holds = {number: end for number, end in state.holds.items() if number != entry["hold"]}
    return state.moved(head, entry["time"], totals, holds=holds)
