"""Whether JSON has the form of a JSON Schema, and where it has not: llguidance does not say where."""

from typing import Any

from corelm.api import InvalidRequestError

_SCHEMAS = frozenset({"additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"})
"""Keywords whose value is a schema."""
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_OBJECTS = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})


def check_schema(schema: Any, path: str = "#") -> None:
    """Raise `InvalidRequestError`, which has the path, where a schema, or a list or object of them, is missing."""
    if isinstance(schema, dict):
        for keyword, value in schema.items():
            _check_keyword(keyword, value, f"{path}/{keyword}"[:200])
    elif not isinstance(schema, bool):
        raise InvalidRequestError(f"{path}: a schema must be an object or true or false")


def _check_keyword(keyword: str, value: Any, path: str) -> None:
    if keyword in _OBJECTS:
        if not isinstance(value, dict):
            raise InvalidRequestError(f"{path}: must be an object of schemas")
        for name, part in value.items():
            check_schema(part, f"{path}/{name}"[:200])
    elif keyword in _LISTS or (keyword == "items" and isinstance(value, list)):  # as in older drafts
        if not isinstance(value, list):
            raise InvalidRequestError(f"{path}: must be a list of schemas")
        for index, part in enumerate(value):
            check_schema(part, f"{path}/{index}")
    elif keyword in _SCHEMAS:
        check_schema(value, path)
