"""The file of a SQLite ledger: created atomically, identified before use, checked while in use."""

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

from odometer_accountant.errors import LedgerCorrupt, StoreUnavailable

log = logging.getLogger("odometer.stores.sqlite")
NEW_LEDGER = "%s is a new ledger: nothing that was spent elsewhere is counted in it"
"""The warning for a file that was just made. `odometer serve` hides it where it says so itself."""

DEFAULT_FOLDER = "data"
"""The only folder that is created for a new ledger, in the working directory."""
APPLICATION_ID = 0x506F646F  # "Podo", in the file's header: this is a ledger and no other database
SCHEMA_VERSION = 2
WITHOUT_MARKS = 1
"""The previous version: opening it adds the table of marks."""

# An entry's id is stream << 40 | sequence. So one B-tree, without an index beside it, takes an append in a
# few neighbouring pages and gives a stream's range in one scan. 8 million streams, 10^12 entries in each.
SEQUENCE_BITS = 40
# Marks are in a B-tree of their own. A blob's mark has its stream and name; the mark of a stream's end has
# number 0 and the stream's name, so that a row lost from `streams` is noticed; a key's mark has the negative
# number of its stream.
MARKS = """CREATE TABLE marks(stream INTEGER NOT NULL, name TEXT NOT NULL, mark BLOB NOT NULL,
        PRIMARY KEY (stream, name)) WITHOUT ROWID"""
SCHEMA = (
    f"""CREATE TABLE streams(
        id INTEGER PRIMARY KEY CHECK (id < {1 << (63 - SEQUENCE_BITS)}), name TEXT NOT NULL UNIQUE,
        sequence INTEGER NOT NULL CHECK (sequence < {1 << SEQUENCE_BITS}), hash TEXT NOT NULL)""",
    "CREATE TABLE entries(id INTEGER PRIMARY KEY, hash TEXT NOT NULL, body BLOB NOT NULL)",
    """CREATE TABLE keys(stream INTEGER NOT NULL, key TEXT NOT NULL, sequence INTEGER NOT NULL,
        PRIMARY KEY (stream, key)) WITHOUT ROWID""",
    """CREATE TABLE blobs(stream INTEGER NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL,
        PRIMARY KEY (stream, name)) WITHOUT ROWID""",
    MARKS,
    "CREATE TABLE notes(name TEXT PRIMARY KEY, salt TEXT NOT NULL, text TEXT NOT NULL) WITHOUT ROWID",
    f"PRAGMA application_id={APPLICATION_ID}",
    f"PRAGMA user_version={SCHEMA_VERSION}",
)

# Errors that mean damaged content, not an unreachable file.
_DAMAGE = {"SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT"}
_CONTRADICTION = {"SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_ROWID", "SQLITE_CONSTRAINT_UNIQUE"}


class LedgerFile:
    """One ledger file and the two that SQLite keeps beside it while it is open (`-wal`, `-shm`)."""

    def __init__(self, path: str, timeout_s: float) -> None:
        """Create the file if it is missing, and check that this version can write it.

        `timeout_s` bounds each wait for another process's lock. Raises ValueError if the folder is missing.
        """
        self.path = Path(path).resolve()
        self.name = self.path.name
        self._timeout_s = timeout_s
        self._process = os.getpid()
        self._size = 0
        with self.translate_errors(f"open the ledger file {self.path}"):
            if not self.path.exists():
                self._create()
            status = self.path.stat()
            if status.st_size == 0:
                raise LedgerCorrupt(f"{self.path} is empty, not a ledger. Was it cut off? Restore a backup.")
            self._main = _identity(status)
            self.writer = self._open_writer()
            try:
                companions = (self._beside("-wal"), self._beside("-shm"))
                self._companions = {path: _identity(path.stat()) for path in companions}
                self.check()
            except BaseException:
                self.writer.close()
                raise

    @contextmanager
    def translate_errors(self, doing: str) -> Iterator[None]:
        """Raise errors of SQLite and the file system as LedgerCorrupt or StoreUnavailable."""
        try:
            yield
        except sqlite3.Error as error:
            name: str = getattr(error, "sqlite_errorname", "")
            if "decode to UTF-8" in str(
                error
            ):  # found by Python, not by SQLite; its message holds the raw bytes
                raise LedgerCorrupt(
                    f"Could not {doing}: the file is damaged (text that is not UTF-8)"
                ) from None
            if name in _CONTRADICTION or any(name.startswith(damage) for damage in _DAMAGE):
                raise LedgerCorrupt(f"Could not {doing}: the file is damaged ({error})") from error
            raise StoreUnavailable(f"Could not {doing}: {error}") from error
        except OSError as error:
            raise StoreUnavailable(f"Could not {doing}: {error.strerror or error}") from error

    def connect_reader(self) -> sqlite3.Connection:
        """A new connection that cannot write."""
        connection = self._connect()
        try:
            connection.execute("PRAGMA query_only=ON")
            connection.execute("SELECT id FROM streams LIMIT 1").fetchone()  # opens the log, if it is there
            self.check()
            return connection
        except BaseException:
            connection.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        # mode=rw: SQLite must never create an empty database in place of a ledger.
        uri = f"file:{quote(str(self.path))}?mode=rw"
        connection = sqlite3.connect(
            uri, uri=True, timeout=self._timeout_s, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA cell_size_check=ON")  # finds damage sooner; only sets a flag
        return connection

    def check(self) -> None:
        """Raise unless the open files are still the ones at their paths.

        Runs after each write and each new connection. SQLite continues with a deleted or replaced file, and
        what it commits there is lost.
        """
        self.check_main()
        for path, identity in self._companions.items():
            if _identity(path.stat()) != identity:
                raise StoreUnavailable(f"{path.name} was replaced while it was open. Start again.")

    def check_main(self) -> None:
        """Raise unless the ledger's main file is the one that was opened and did not shrink."""
        self.check_process()
        size_before = self._size  # read before the file's: other threads raise it
        status = self.path.stat()
        if _identity(status) != self._main:
            raise StoreUnavailable(f"{self.name} was replaced while it was open. Start again.")
        if status.st_size < size_before:
            raise LedgerCorrupt(f"{self.name} became shorter while it was open. Do not trust it.")
        self._size = status.st_size

    def check_process(self) -> None:
        """Raise in a forked child: SQLite's locks do not hold there."""
        if os.getpid() != self._process:
            raise StoreUnavailable(f"{self.name} was opened before a fork. Open it again in the child.")

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.name + suffix)

    def _open_writer(self) -> sqlite3.Connection:
        connection = self._connect()
        try:
            self._recognise(connection)
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
            if mode != "wal":
                raise StoreUnavailable(f"{self.path} cannot have a write-ahead log. Use a local disk.")
            # FULL: the log is synchronised at every commit. With NORMAL a power cut loses the last charges.
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA cache_size=-32768")  # KiB
            connection.execute("BEGIN IMMEDIATE")  # a file that cannot be written is found now, not later
            connection.execute("ROLLBACK")
            return connection
        except BaseException:
            connection.close()
            raise

    def _recognise(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION_ID:
            raise StoreUnavailable(f"{self.path} is a SQLite file, but no ledger of Privacy Odometer.")
        if version == WITHOUT_MARKS:
            version = self._upgrade(connection)
        if version != SCHEMA_VERSION:
            raise StoreUnavailable(
                f"{self.path} has format {version}; this version reads format {SCHEMA_VERSION}. "
                "Use the version of Privacy Odometer that wrote it, or a newer one."
            )

    def _upgrade(self, connection: sqlite3.Connection) -> int:
        """Add the table of marks; existing rows stay. Returns the new version."""
        connection.execute("BEGIN IMMEDIATE")
        try:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version == WITHOUT_MARKS:  # no other process was faster
                connection.execute(MARKS)
                connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
                version = SCHEMA_VERSION
            connection.execute("COMMIT")
            return int(version)
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _create(self) -> None:
        """Create the database under another name, then link it, so that no process sees half of one."""
        # A log without its database: the main file was lost. A new one must not take its place.
        beside = self._beside("-wal")
        if beside.exists() and not self.path.exists():
            raise LedgerCorrupt(f"{self.path} is missing, but its log {beside.name} is there. Restore both.")
        folder = self.path.parent
        if not folder.is_dir() and folder == Path(DEFAULT_FOLDER).resolve():
            _make_folder(folder)
        if not folder.is_dir():
            # A mistyped path must not start a ledger that has spent nothing.
            raise ValueError(f"there is no folder {folder}: create it, then start again")
        draft = folder / f".{self.name}.{uuid4().hex}.new"
        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            _write_schema(draft)
            _synchronise(draft)
            with suppress(FileExistsError):  # another process was faster: use its file
                self.path.hardlink_to(draft)
        finally:
            draft.unlink(missing_ok=True)
        _synchronise(folder)
        log.warning(NEW_LEDGER, self.path)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _write_schema(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("BEGIN")
        for statement in SCHEMA:
            connection.execute(statement)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()


def _make_folder(folder: Path) -> None:
    """Create `folder` and its parents so that they survive a power cut."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _synchronise(folder.parent)


def _synchronise(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
