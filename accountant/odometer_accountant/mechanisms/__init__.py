"""The mechanisms. Importing this package fills the registry; `AnyMechanism` is their union by `kind`."""

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, Union

from pydantic import Field, TypeAdapter

from odometer_accountant.mechanisms.base import Adjacency, Mechanism
from odometer_accountant.model import Model, Number, Whole

_FAMILIES: Final = (
    "aggregated",
    "composed",
    "discrete",
    "interactive",
    "local",
    "local_reports",
    "noise",
    "pate",
    "sampling",
    "selection",
    "shuffled",
    "stated",
    "training",
    "tuning",
)
FAMILIES: Final = tuple(import_module(f"{__name__}.{name}") for name in _FAMILIES)
"""The modules that hold mechanisms: importing one registers them."""

_KINDS: Any = tuple(Mechanism.registry[kind] for kind in sorted(Mechanism.registry))
if TYPE_CHECKING:
    AnyMechanism = Mechanism
else:
    AnyMechanism = Annotated[Union[_KINDS], Field(discriminator="kind")]  # noqa: UP007  (of a tuple)
for _kind in _KINDS:
    _kind.model_rebuild(_types_namespace={"AnyMechanism": AnyMechanism})
ANY_MECHANISM: TypeAdapter[Mechanism] = TypeAdapter(AnyMechanism)

__all__ = [
    "ANY_MECHANISM",
    "FAMILIES",
    "Adjacency",
    "AnyMechanism",
    "Mechanism",
    "Model",
    "Number",
    "Whole",
]
