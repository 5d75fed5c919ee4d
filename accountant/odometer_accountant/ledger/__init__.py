"""Entries, the state that folds out of them, and the decisions that add to them. Pure, but for `snapshot`."""
