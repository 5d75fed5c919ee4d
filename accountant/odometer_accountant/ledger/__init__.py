"""Entries, the state that they fold into, and the decisions that add to them.

Importing this package registers every type of entry and every type of command. Pure, but for `adoption`,
`snapshot` and `stored_counts`, which read a store.
"""

from importlib import import_module
from typing import Final

_MODULES: Final = (
    "administration",
    "adoption",
    "budget_changes",
    "carried",
    "charges",
    "derived",
    "holds",
    "sessions",
    "shards",
)
"""The modules that register entry types and the functions that decide on commands."""

for _name in _MODULES:
    import_module(f"{__name__}.{_name}")
