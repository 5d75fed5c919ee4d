"""The kinds of budget. Importing this package fills the registry; `AnyBudget` is their union by `kind`."""

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, Union

from pydantic import Field, TypeAdapter

from odometer_accountant.budgets.base import Budget

_MODULES: Final = ("coordinate", "approximate")
"""The modules that define kinds, in the order of the published schema. Importing one registers its kinds."""
for _name in _MODULES:
    import_module(f"{__name__}.{_name}")

_KINDS: Any = tuple(Budget.registry.values())
if TYPE_CHECKING:
    AnyBudget = Budget
else:
    AnyBudget = Annotated[Union[_KINDS], Field(discriminator="kind")]  # noqa: UP007  (of a tuple)
ANY_BUDGET: TypeAdapter[Budget] = TypeAdapter(AnyBudget)

__all__ = ["ANY_BUDGET", "AnyBudget", "Budget"]
