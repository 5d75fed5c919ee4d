"""Where ledgers are kept. `open_store(url)` picks the back-end by the URL's scheme."""

from accountant.stores.base import EMPTY_HEAD, Head, NewEntry, Note, Row, Store, Write

__all__ = ["EMPTY_HEAD", "Head", "NewEntry", "Note", "Row", "Store", "Write"]
