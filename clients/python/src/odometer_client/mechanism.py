"""What every typed mechanism can do: become the document that the service takes."""

import dataclasses
from typing import Any, ClassVar


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mechanism:
    """A parameterised DP computation: what ONE release runs. Values are checked by the service."""

    kind: ClassVar[str]

    def document(self) -> dict[str, Any]:
        """The JSON document, without what was not given."""
        members: dict[str, Any] = {"kind": self.kind}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                members[field.name] = _plain(value)
        return members


def _plain(value: Any) -> Any:
    if isinstance(value, Mechanism):
        return value.document()
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value
