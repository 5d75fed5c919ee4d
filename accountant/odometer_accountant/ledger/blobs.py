"""Names of the blobs that stand beside a stream's entries."""

from typing import Final

from odometer_accountant.scopes import in_window

CONFIG_BLOB: Final = "config"
HOLDS_BLOB: Final = "holds"
LOSS_DICTIONARY_BLOB: Final = "lexicon"
SESSIONS_BLOB: Final = "sessions"
TOTALS: Final = "totals/"
WINDOWS: Final = "window/"


def scope_blob(scope: str) -> str:
    """Name of the blob that holds a scope's running totals."""
    return TOTALS + scope


def window_blob(scope: str, window: str) -> str:
    """Name of the blob that holds what a scope spent in the current window of a kind."""
    return WINDOWS + in_window(scope, window)
