"""The base of every document: a frozen pydantic model without unknown fields, and its numbers as text."""

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
"""A finite JSON number: no string, no boolean, no negative zero. It means its shortest decimal."""


Whole = Annotated[int, Field(strict=True)]
"""A JSON whole number: no string, no boolean, no fraction."""


def _kind_is_told(schema: dict[str, Any]) -> None:
    """In a schema, `kind` is required: by it alone is known which of several forms a document has.

    In Python it is the class's own, and need not be given.
    """
    kind = schema.get("properties", {}).get("kind", {})
    if "const" in kind:
        kind.pop("default", None)
        others = [name for name in schema.get("required", ()) if name != "kind"]
        schema["required"] = ["kind", *others]


class Model(BaseModel):
    """A frozen document that takes no unknown field."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, json_schema_extra=_kind_is_told
    )

    numbers: ClassVar[set[str]] = set()
    """Names of the fields of all documents that hold numbers, one or several."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        fields = cls.model_fields.items()
        Model.numbers.update(name for name, field in fields if _holds_numbers(field.annotation))

    @field_validator("*", mode="after")
    @classmethod
    def _not_negative_zero(cls, value: Any) -> Any:
        # On the field as a whole, so that its bounds stay bounds of a number (and of its JSON schema).
        return not_negative_zero(value) if isinstance(value, float) else value


def not_negative_zero(number: float) -> float:
    """The number, which is no negative zero. Raises ValueError."""
    if number == 0 and math.copysign(1.0, number) < 0:
        raise ValueError("negative zero is not a number this service takes: write 0")
    return number


def _holds_numbers(annotation: Any) -> bool:
    """Whether a field's type is a float, one or none, or a tuple of them."""
    return annotation is float or any(_holds_numbers(part) for part in get_args(annotation))


STORED: Final = {"stored": True}
"""Context of validation in which a ledger's own charges are read: what was taken once stays readable."""


def floats_to_text(value: Any) -> Any:
    """A document as a ledger holds it: every float as its shortest decimal string."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {key: floats_to_text(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [floats_to_text(item) for item in value]
    return value


def text_to_floats(document: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `floats_to_text`: decimal strings are numbers again, in the fields that hold numbers."""
    return {name: _text_to_floats(value, name in Model.numbers) for name, value in document.items()}


def _text_to_floats(value: Any, number: bool) -> Any:
    if isinstance(value, Mapping):
        # A field of numbers by name: its keys are names that people chose.
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
