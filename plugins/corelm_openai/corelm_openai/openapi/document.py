"""The whole description."""

import re
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec
from litestar.handlers import HTTPRouteHandler

from corelm_openai.hookspecs import OPEN
from corelm_openai.openapi.operation import JSON, OPERATION, Operation
from corelm_openai.openapi.shown import shown, shown_body

Schemas = dict[Any, dict[str, Any]]
"""The JSON Schema of each type, most of them references."""

KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
"""How a key may be sent."""
HEADERS = {"x-request-id": {"required": True, "schema": {"type": "string"}}}
"""Those of every response."""
_PARAMETER = re.compile(r"\{(\w+):\w+\}")
"""A parameter in a path of Litestar."""
_QUALIFIED = re.compile(r"corelm_openai\.(\w+)\.[\w.]*?(\w+)(?=\")")
"""What msgspec calls one of several structs of the same name, in JSON: its room, its module and the name."""


def describe(handlers: Iterable[HTTPRouteHandler], root_path: str, *, asks_for_keys: bool) -> dict[str, Any]:
    """The OpenAPI document of the routes that have an `Operation`, all of them below `root_path`."""
    described = [handler for handler in handlers if OPERATION in handler.opt]
    operations = [handler.opt[OPERATION] for handler in described]
    schemas, components = _schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for handler in described:
        for path in sorted(handler.paths):
            item = paths.setdefault(_PARAMETER.sub(r"{\1}", path), {})
            for method in sorted(handler.http_methods):
                is_open = not asks_for_keys or bool(handler.opt.get(OPEN))
                item[method.lower()] = _operation(handler, method.lower(), path, schemas, is_open=is_open)
    return {
        "openapi": "3.1.0",
        "info": {"title": "corelm", "version": version("corelm-openai")},
        "servers": [{"url": root_path or "/"}],
        "paths": paths,
        "components": {"schemas": components, "responses": _errors(operations, schemas), "securitySchemes": KEYS},
        "security": [{name: []} for name in KEYS],
    }


def _schemas(operations: Iterable[Operation]) -> tuple[Schemas, dict[str, Any]]:
    """The schemas of everything that is sent, and the components that they refer to."""
    types: dict[Any, Any] = {}
    for operation in operations:
        if operation.body:
            types[operation.body] = shown_body(operation.body)
        for sent in (operation.reply, *operation.events, operation.error_body):
            types[sent] = shown(sent)
    described = msgspec.json.schema_components(types.values(), ref_template="#/components/schemas/{name}")
    schemas, components = msgspec.json.decode(_QUALIFIED.sub(_in_room, msgspec.json.encode(described).decode()))
    return dict(zip(types, schemas, strict=True)), components


def _in_room(match: re.Match[str]) -> str:
    """A name that does not depend on modules: ``AnthropicTool``."""
    room, name = match.groups()
    return f"{room.capitalize()}{name}"


def _operation(handler: HTTPRouteHandler, method: str, path: str, schemas: Schemas, *, is_open: bool) -> dict[str, Any]:
    operation: Operation = handler.opt[OPERATION]
    described: dict[str, Any] = {
        "operationId": method + re.sub(r"\W+", "_", _PARAMETER.sub(r"\1", path)),
        "summary": operation.summary,
        "responses": _responses(operation, schemas, is_open=is_open, has_content=method != "head"),
    }
    if parameters := [*_path_parameters(path), *_query_parameters(operation.query)]:
        described["parameters"] = parameters
    if operation.body:
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": schemas[operation.body]}}}
    return described | ({"security": []} if is_open else {})


def _path_parameters(path: str) -> Iterator[dict[str, Any]]:
    for name in _PARAMETER.findall(path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query_parameters(query: type[msgspec.Struct] | None) -> Iterator[dict[str, Any]]:
    if query:
        for name, schema in msgspec.json.schema(query)["$defs"][query.__name__]["properties"].items():
            yield {"name": name, "in": "query", "schema": schema}


def _responses(operation: Operation, schemas: Schemas, *, is_open: bool, has_content: bool) -> dict[str, Any]:
    content: dict[str, Any] = {operation.media_type: {"schema": schemas[operation.reply]}}
    if operation.events:
        content["text/event-stream"] = _stream([schemas[event] for event in operation.events])
    statuses = operation.error_statuses if is_open else [401, *operation.error_statuses]
    if not has_content:
        return {str(status): _response(status) for status in (200, *statuses)}
    errors = {
        str(status): {"$ref": f"#/components/responses/{_error_name(operation, status, schemas)}"}
        for status in statuses
    }
    return {"200": _response(200, content), **errors}


def _errors(operations: Iterable[Operation], schemas: Schemas) -> dict[str, Any]:
    """Every error that a route may answer with."""
    return {
        _error_name(operation, status, schemas): _response(status, {JSON: {"schema": schemas[operation.error_body]}})
        for operation in operations
        for status in (401, *operation.error_statuses)
    }


def _error_name(operation: Operation, status: int, schemas: Schemas) -> str:
    """Such as ``AnthropicErrorBody404``."""
    return f"{schemas[operation.error_body]['$ref'].rpartition('/')[2]}{status}"


def _response(status: int, content: dict[str, Any] | None = None) -> dict[str, Any]:
    response = {"description": HTTPStatus(status).phrase, "headers": HEADERS}
    return response | ({"content": content} if content else {})


def _stream(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Server-sent events. Before OpenAPI 3.2 there are no words for them; as is usual, the schema is that of each."""
    structs = [schema for schema in events if "$ref" in schema]
    data = {"type": "string", "contentMediaType": JSON, "contentSchema": {"anyOf": structs}}
    options = [data, *(schema for schema in events if "$ref" not in schema)]
    properties = {"event": {"type": "string"}, "data": {"anyOf": options}}
    return {"schema": {"type": "object", "properties": properties, "required": ["data"]}}
