"""The OpenAPI description, made from the table of operations: every body, reply and error of every route."""

from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from accountant.errors import OdometerError
from api.operations import OPERATIONS, Operation

_REF = "#/components/schemas/{model}"


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
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    schemas.add(Problem)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "description": description},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


class _Schemas:
    """Collects component schemas while paths are written."""

    def __init__(self) -> None:
        self.components: dict[str, Any] = {}

    def add(self, kind: Any) -> dict[str, Any]:
        """The schema of a model or a type adapter, its definitions moved to the components."""
        if isinstance(kind, TypeAdapter):
            schema = kind.json_schema(ref_template=_REF)
        else:
            _, top = models_json_schema(
                [(kind, "validation")], ref_template=_REF, schema_generator=GenerateJsonSchema
            )
            self.components.update(top.get("$defs", {}))
            return {"$ref": _REF.format(model=kind.__name__)}
        self.components.update(schema.pop("$defs", {}))
        return dict(schema)


def _operation(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": _identifier(operation),
        "tags": [_tag(operation)],
        "description": f"Needs a key of role {operation.role.value} or above.",
        "parameters": _parameters(operation),
        "responses": {**_success(operation, schemas), **_problems(operation)},
    }
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _json(schemas.add(operation.body))}
    return described


def _identifier(operation: Operation) -> str:
    words = [part for part in operation.path.removeprefix("/v1/").split("/") if not part.startswith("{")]
    return "_".join([operation.method.lower(), *words, *(["one"] if operation.path.endswith("}") else [])])


def _tag(operation: Operation) -> str:
    words = operation.path.removeprefix("/v1/").split("/")
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
    found = [
        {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
        for part in operation.path.split("/")
        if part.startswith("{")
    ]
    found += [
        {"name": name, "in": "header", "required": True, "description": text, "schema": {"type": "string"}}
        for name, text in operation.headers.items()
    ]
    if operation.query is not None:
        schema = operation.query.model_json_schema()
        found += [
            {
                "name": name,
                "in": "query",
                "required": False,
                "description": item.pop("description", ""),
                "schema": item,
            }
            for name, item in schema["properties"].items()
        ]
    return found
