"""The base of every success body."""

from pydantic import BaseModel, ConfigDict


class Reply(BaseModel):
    """A success body. Spent amounts are rounded up, left amounts are rounded down; null means no bound."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)
