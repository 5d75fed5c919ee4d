"""Bounds that more than one place needs. Light to import: the command line reads them at its start."""

from typing import Final

BODY_MAX: Final = 256 * 1024
"""Bytes of a request's body."""
