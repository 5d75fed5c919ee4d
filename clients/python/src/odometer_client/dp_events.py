"""Events of the library dp_accounting as JSON, without that library: what they cost the service says."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

_DEPTH_MAX: Final = 64


def event_document(event: Any) -> dict[str, Any]:
    """The JSON of a live `DpEvent`, of the named tuple that `to_named_tuple` makes of one, or of such JSON.

    Classes are told by their name and module, fields by theirs. Raises TypeError for what is none of these.
    """
    document = _plain(event, 0)
    if isinstance(document, dict) and "class_name" in document:
        return document
    raise TypeError(
        f"{type(event).__name__} is no event of dp_accounting: give a DpEvent, its named tuple, or the JSON "
        "of one, an object with a class_name"
    )


def _plain(value: Any, depth: int) -> Any:
    if depth > _DEPTH_MAX:
        raise TypeError(f"events more than {_DEPTH_MAX} deep within each other")
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, bytes):  # TensorFlow makes bytes of the names in a named tuple
        return value.decode()
    names = _field_names(value)
    if names is not None:
        named = hasattr(value, "_fields")
        kind = type(value)
        document = {} if named else {"module_name": kind.__module__, "class_name": kind.__name__}
        return document | {name: _plain(getattr(value, name), depth + 1) for name in names}
    if isinstance(value, Mapping):
        return {str(name): _plain(item, depth + 1) for name, item in value.items()}
    if isinstance(value, Sequence):
        return [_plain(item, depth + 1) for item in value]
    return _number(value, depth)


def _field_names(value: Any) -> tuple[str, ...] | None:
    """Names of the fields of an attrs object or of a named tuple; None for anything else."""
    fields = getattr(type(value), "__attrs_attrs__", None)
    if fields is not None:
        return tuple(field.name for field in fields)
    return getattr(value, "_fields", None)


def _number(value: Any, depth: int) -> Any:
    """A number, also one of numpy, as JSON has it."""
    if hasattr(value, "tolist"):  # numpy's and jax's arrays and scalars
        found = value.tolist()
        return found if isinstance(found, bool) else _plain(found, depth + 1)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return "inf" if value == math.inf else float(value)
    raise TypeError(f"{type(value).__name__} is no part of an event of dp_accounting")
