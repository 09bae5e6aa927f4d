"""Pieces of grammars that force calls, in llguidance's dialect of Lark."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from corelm_openai.formats import ToolFunction

_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""How models write JSON. Any other white space could go on for ever."""

_ANNOTATIONS = {"$comment", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly"}
_VALUES = {"const", "enum"}
_BY_NAME = {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
"""Keywords that have a schema for each name."""


def quoted(text: str) -> str:
    """A text."""
    return json.dumps(text)


def marker(text: str, tokens: Mapping[str, int]) -> str:
    """A text that marks calls."""
    return f"<[{tokens[text]}]>" if text in tokens else quoted(text)


def json_value(schema: str) -> str:
    """A JSON value of a schema, which is JSON too."""
    value = json.loads(schema)
    return f"%json {json.dumps(value if isinstance(value, bool) else {**bare(value), 'x-guidance': _SPACING})}"


def bare(schema: Any) -> Any:
    """The schema without what only explains it, as grammars may not be long."""
    if isinstance(schema, list):
        return list(map(bare, schema))
    if not isinstance(schema, dict):
        return schema
    return {key: _bare_member(key, value) for key, value in schema.items() if key not in _ANNOTATIONS}


def _bare_member(key: str, value: Any) -> Any:
    if key in _VALUES:
        return value
    if key in _BY_NAME and isinstance(value, dict):
        return {name: bare(schema) for name, schema in value.items()}
    return bare(value)


def repeated(item: str, separator: str, *, parallel: bool) -> str:
    """An item, or any number of them if `parallel`."""
    return f"{item} ({separator} {item})*" if parallel else item


def calls_of(functions: Sequence[ToolFunction], opening: Callable[[str], str], closing: str = "") -> str:
    """The rule ``call``: one of the functions with arguments. What comes before them, `opening` makes of its name."""
    rules = ["call: " + " | ".join(f"call_{index}" for index in range(len(functions)))]
    for index, function in enumerate(functions):
        rules.append(f"call_{index}: {opening(function.name)} call_{index}_arguments {closing}")
        rules.append(f"call_{index}_arguments: {json_value(json.dumps(function.parameters))}")
    return "\n".join(rules)


def json_object_calls(functions: Sequence[ToolFunction], arguments: str) -> str:
    """The rule ``call``: an object that calls one of the functions. `arguments` is the key of theirs.

    Its pieces are those of which the compiler makes JSON, or it could not tell the beginnings of a call and of some
    other object apart.
    """

    def opening(name: str) -> str:
        pieces = ["{", '"name"', ": ", f'"{name}"', ", ", f'"{arguments}"', ": "]
        return " ".join(map(quoted, pieces))

    return calls_of(functions, opening, quoted("}"))
