"""The mechanisms. Importing this package fills the registry; `AnyMechanism` is their union by `kind`."""

from typing import Annotated

from pydantic import Field, TypeAdapter

from accountant.mechanisms.base import Adjacency, Document, Mechanism, Number, Whole
from accountant.mechanisms.local import RandomizedResponse
from accountant.mechanisms.noise import Gaussian, Laplace
from accountant.mechanisms.sampling import PoissonSubsampled
from accountant.mechanisms.stated import Approximate, Gdp, NonPrivate, Pure, RenyiCurve, Zcdp

AnyMechanism = Annotated[
    Gaussian
    | Laplace
    | RandomizedResponse
    | Pure
    | Approximate
    | Zcdp
    | Gdp
    | RenyiCurve
    | NonPrivate
    | PoissonSubsampled,
    Field(discriminator="kind"),
]
ANY_MECHANISM: TypeAdapter[Mechanism] = TypeAdapter(AnyMechanism)

__all__ = ["ANY_MECHANISM", "Adjacency", "AnyMechanism", "Document", "Mechanism", "Number", "Whole"]
