"""The base class of all documents: frozen, without unknown fields. Numbers as the text that ledgers hold."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
)

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""A finite JSON number: not a string, boolean or negative zero. It stands for its shortest decimal."""


Whole = Annotated[int, Field(strict=True)]
"""A whole JSON number: not a string, boolean or fraction."""


def _kind_is_told(schema: dict[str, Any]) -> None:
    """Make `kind` required in the schema: it tells which of several forms a document has.

    In Python it has the value of the class, and need not be given.
    """
    kind = schema.get("properties", {}).get("kind", {})
    if "const" in kind:
        kind.pop("default", None)
        others = [name for name in schema.get("required", ()) if name != "kind"]
        schema["required"] = ["kind", *others]


class Model(BaseModel):
    """A frozen document. Unknown fields are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, json_schema_extra=_kind_is_told
    )

    numbers: ClassVar[set[str]] = set()
    """Names of all fields, in any document, that hold a number or several."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        fields = cls.model_fields.items()
        Model.numbers.update(name for name, field in fields if _holds_numbers(field.annotation))

    @field_validator("*", mode="after")
    @classmethod
    def _not_negative_zero(cls, value: Any) -> Any:
        # On the whole field, so that its bounds remain bounds of a number, also in the JSON schema.
        return not_negative_zero(value) if isinstance(value, float) else value


def not_negative_zero(number: float) -> float:
    """The number. Raises ValueError for negative zero."""
    if number == 0 and math.copysign(1.0, number) < 0:
        raise ValueError("negative zero is not a number this service takes: write 0")
    return number


def _holds_numbers(annotation: Any) -> bool:
    """Whether the type of a field is a float, an optional float, or a tuple of floats."""
    return annotation is float or any(_holds_numbers(part) for part in get_args(annotation))


STORED: Final = {"stored": True}
"""Validation context for documents from a ledger: charges of earlier versions stay readable."""


def floats_to_text(value: Any) -> Any:
    """A document in the form that a ledger holds: every float as its shortest decimal string."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {key: floats_to_text(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [floats_to_text(item) for item in value]
    return value


def text_to_floats(document: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `floats_to_text`: decimal strings become numbers, in fields that hold numbers."""
    return {name: _text_to_floats(value, name in Model.numbers) for name, value in document.items()}


def _text_to_floats(value: Any, number: bool) -> Any:
    if isinstance(value, Mapping):
        # A field of numbers by name: its keys are chosen by people.
        return (
            {key: _text_to_floats(item, True) for key, item in value.items()}
            if number
            else text_to_floats(value)
        )
    if isinstance(value, list):
        return [_text_to_floats(item, number) for item in value]
    return _number(value) if number and isinstance(value, str) else value


def _number(text: str) -> float:
    """A float as `floats_to_text` writes it. Raises ValueError for other text: 1e-400 would be read as 0."""
    number = float(text)
    if repr(number) != text:
        raise ValueError(f"{text[:80]!r} is no number as a ledger holds it, which would be {number!r}")
    return number
