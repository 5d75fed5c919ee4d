"""The base class of the typed mechanisms: it checks parameter names and makes the JSON document."""

import dataclasses
from difflib import get_close_matches
from typing import Any, ClassVar, Self

from odometer_client.parameter_names import ALIASES, MEANS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mechanism:
    """A parameterised DP computation: what ONE release runs. Values are checked by the service."""

    kind: ClassVar[str]

    def __new__(cls, *arguments: Any, **parameters: Any) -> Self:
        """Raises TypeError for a parameter that there is not, with the one that is meant."""
        names = [field.name for field in dataclasses.fields(cls)]
        if arguments:
            raise TypeError(f"{cls.__name__}: write each parameter with its name: {', '.join(names)}")
        for name in parameters:
            if name not in names:
                raise TypeError(f"{cls.__name__} has no parameter {name!r}: {_instead(name, names)}")
        return super().__new__(cls)

    def document(self) -> dict[str, Any]:
        """The JSON document, without what was not given."""
        members: dict[str, Any] = {"kind": self.kind}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                members[field.name] = _plain(value)
        return members


def _instead(name: str, names: list[str]) -> str:
    near = [*(one for one in ALIASES.get(name.casefold(), "").split() if one in names)]
    near += get_close_matches(name.casefold(), names, n=1)
    if not near:
        return f"there are {', '.join(names)}" if names else "there are none"
    return f"did you mean {near[0]}" + (f" ({MEANS[near[0]]})?" if near[0] in MEANS else "?")


def _plain(value: Any) -> Any:
    if isinstance(value, Mechanism):
        return value.document()
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value
