"""The OpenAPI description, made from the table of operations: every body, reply and error of every route."""

from typing import Any, Final

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from odometer_accountant.budgets import ANY_BUDGET
from odometer_accountant.errors import OdometerError
from odometer_accountant.mechanisms import ANY_MECHANISM, Mechanism
from odometer_accountant.service.operations import Operation
from privacy_odometer.routes.table import Route, routed

_REF = "#/components/schemas/{model}"
_UNIONS: Final[dict[str, tuple[TypeAdapter[Any], str]]] = {
    "Mechanism": (ANY_MECHANISM, "What is about to run: one of the kinds of mechanism."),
    "Budget": (ANY_BUDGET, "A limit on what a scope may lose."),
}
"""Documents of several kinds that stand in many places: each is one component."""
_TAGS: Final = {
    "datasets": "What is protected, with its budgets.",
    "closure": "The end of a dataset: no more charges, and the ledger stays.",
    "partitions": "Disjoint parts of a dataset, with odometers of their own.",
    "unfreeze": "A ledger that lost entries: a person's decision to go on.",
    "budgets": "Limits, and what is left of them.",
    "charges": "Asked before anything is released: admitted, or refused with what would fit.",
    "checks": "The same question, without a charge.",
    "holds": "Charges ahead of the work, settled for what was used.",
    "sessions": "Interactive mechanisms, charged as their public answers come.",
    "derived": "What was made of a release, for nothing.",
    "lineage": "What an entry comes of, and what was made of it.",
    "scopes": "Whose odometers there are.",
    "odometer": "What was lost, and when each number holds.",
    "history": "The odometer over time.",
    "spend": "Who and what spent.",
    "ledger": "The entries.",
    "mechanisms": "Every kind of mechanism, with its parameters, price and source.",
    "convert": "What a plan would cost.",
    "dp-events": "Plans of another library.",
    "keys": "API keys: what a principal asks with.",
    "principals": "Who asks: each has an odometer, and keeps it when its keys change.",
    "me": "Whose key this is.",
}
_SLUG: Final = "^[a-z0-9][a-z0-9_-]{0,63}$"
_PLACES: Final = {
    "dataset": ("The dataset's name.", _SLUG),
    "budget": ("The budget's name.", _SLUG),
    "hold": ("The `id` of the hold's receipt, whole.", r"^([0-9a-f]{4}-)?[1-9][0-9]{0,15}\.[0-9a-f]{8}$"),
    "session": ("The `id` that was said when it was opened, whole.", r"^[1-9][0-9]{0,15}\.[0-9a-f]{8}$"),
    "key": ("The key's id; not its token.", "^k_[0-9a-f]{16}$"),
    "principal": ("The principal's id.", "^[A-Za-z0-9_.:-]{1,64}$"),
}
"""What stands in a path."""


class Problem(BaseModel):
    """An RFC 9457 problem. Each type adds fields of its own."""

    type: str
    title: str
    status: int
    detail: str
    retryable: bool


def describe(title: str, version: str, description: str) -> dict[str, Any]:
    """The whole document."""
    schemas = _Schemas()
    paths: dict[str, dict[str, Any]] = {}
    for route, operation in routed():
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, operation, schemas)
    schemas.add(Problem)
    tags = dict.fromkeys(_tag(route) for route, _ in routed())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": version,
            "description": description,
            "contact": {"name": "The Privacy Odometer authors"},
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "Where this description was read."}],
        "tags": [{"name": tag, "description": _TAGS.get(tag, tag)} for tag in tags],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key; an admin makes one with `odometer key create`.",
                }
            },
        },
        "security": [{"key": []}],
    }


class _Schemas:
    """Collects component schemas while paths are written."""

    def __init__(self) -> None:
        self.components: dict[str, Any] = {}
        self._unions: dict[frozenset[str], str] = {}
        for name, (adapter, about) in _UNIONS.items():
            schema = adapter.json_schema(ref_template=_REF)
            definitions = schema.pop("$defs", {})
            self._unions[_members(schema)] = name
            self.components[name] = {"title": name, "description": about, **schema}
            self._keep(definitions)
        for kind in Mechanism.registry.values():
            self.components[kind.__name__]["examples"] = list(kind.examples)

    def add(self, kind: Any) -> dict[str, Any]:
        """The schema of a model or a type adapter, its definitions moved to the components."""
        if isinstance(kind, TypeAdapter):
            schema = kind.json_schema(ref_template=_REF)
            self._keep(schema.pop("$defs", {}))
            return dict(self._named(schema))
        _, top = models_json_schema(
            [(kind, "validation")], ref_template=_REF, schema_generator=GenerateJsonSchema
        )
        self._keep(top.get("$defs", {}))
        return {"$ref": _REF.format(model=kind.__name__)}

    def _keep(self, definitions: dict[str, Any]) -> None:
        for name, schema in definitions.items():
            if name not in self.components:
                self.components[name] = self._named(schema)

    def _named(self, schema: Any) -> Any:
        """The schema, with the name of each union of `_UNIONS` in place of all its members."""
        if isinstance(schema, list):
            return [self._named(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        # Inside a mechanism another one is only hinted at (odometer_accountant.mechanisms.base.Base).
        inner = schema.get("title") == "mechanism" and schema.get("required") == ["kind"]
        name = "Mechanism" if inner else self._unions.get(_members(schema))
        if name is None:
            # A default of null means that it can be left out, which `required` says already.
            kept = {key: item for key, item in schema.items() if (key, item) != ("default", None)}
            return {key: self._named(item) for key, item in kept.items()}
        said = {key: schema[key] for key in ("description",) if key in schema}
        return {"$ref": _REF.format(model=name), **said}


def _members(schema: dict[str, Any]) -> frozenset[str]:
    """The alternatives of a schema, as references."""
    parts = schema.get("oneOf")
    return frozenset(part.get("$ref", "") for part in parts) if isinstance(parts, list) else frozenset()


def _operation(route: Route, operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": _identifier(route),
        "tags": [_tag(route)],
        "description": f"Needs a key of role {operation.role.value} or above.",
        "parameters": _parameters(operation),
        "responses": {**_success(operation, schemas), **_problems(operation)},
    }
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _json(schemas.add(operation.body))}
    return described


def _identifier(route: Route) -> str:
    words = [part for part in route.path.removeprefix("/v1/").split("/") if not part.startswith("{")]
    return "_".join([route.method.lower(), *words, *(["one"] if route.path.endswith("}") else [])])


def _tag(route: Route) -> str:
    words = route.path.removeprefix("/v1/").split("/")
    return words[2] if len(words) > 2 and words[0] == "datasets" else words[0]


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _success(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    if operation.reply is None:
        return {str(operation.status): {"description": "Done"}}
    content = _json(schemas.add(operation.reply))
    found = {str(operation.status): {"description": "Done", "content": content}}
    if "Idempotency-Key" in operation.headers:
        found["200"] = {
            "description": "Done before, under this key: nothing was charged again",
            "content": content,
        }
    return found


def _problems(operation: Operation) -> dict[str, Any]:
    by_status: dict[str, list[type[OdometerError]]] = {}
    for kind in operation.errors:
        by_status.setdefault(str(kind.status), []).append(kind)
    schema = {"$ref": _REF.format(model="Problem")}
    return {
        status: {
            "description": "; ".join(f"{kind.code}: {kind.title}" for kind in kinds),
            "content": {"application/problem+json": {"schema": schema}},
        }
        for status, kinds in by_status.items()
    }


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    found = [_in_path(name) for name in operation.names]
    found += [
        {
            "name": name,
            "in": "header",
            "required": header.required,
            "description": header.text,
            "schema": {"type": "string", "pattern": header.pattern},
        }
        for name, header in operation.headers.items()
    ]
    if operation.query is not None:
        schema = operation.query.model_json_schema()
        required = schema.get("required", ())
        found += [_in_query(name, item, name in required) for name, item in schema["properties"].items()]
    return found


def _in_path(name: str) -> dict[str, Any]:
    said, pattern = _PLACES.get(name, ("", "^[^/]+$"))
    schema = {"type": "string", "pattern": pattern}
    return {"name": name, "in": "path", "required": True, "description": said, "schema": schema}


def _in_query(name: str, item: dict[str, Any], required: bool) -> dict[str, Any]:
    """A parameter of the query: it is left out, never null."""
    given = {key: value for key, value in item.items() if key not in ("description", "anyOf", "title")}
    for one in item.get("anyOf", ()):
        given |= {} if one.get("type") == "null" else one
    if given.get("default", "") is None:
        del given["default"]
    said = item.get("description", "")
    return {"name": name, "in": "query", "required": required, "description": said, "schema": given}
