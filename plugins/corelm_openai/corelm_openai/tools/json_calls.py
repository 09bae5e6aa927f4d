"""Calls that are written as JSON objects: ``{"name": "f", "arguments": {...}}``."""

import json
from collections.abc import Set

from corelm_openai.formats import Arguments, Call
from corelm_openai.reader import Reader, Steps, Wait
from corelm_openai.tools.spans import JSON, bracketed, json_string, json_value

ARGUMENTS = ("arguments", "parameters")
"""What models call them."""
_OTHERS = ("id", "type")
"""Other members that calls have."""


def json_calls(reader: Reader, names: Set[str]) -> Steps[bool]:
    """Read one call, or a list of them. False if there is none: then the candidate is text."""
    if not (yield from reader.literal("[")):
        return (yield from json_call(reader, names))
    found = False
    while True:
        yield from reader.space()
        if not (yield from json_call(reader, names)):
            break
        found = True
        yield from reader.space()
        if not (yield from reader.literal(",")):
            yield from reader.literal("]")
            reader.accept()
            break
    if found:
        yield from reader.reject()
    return found


def json_call(reader: Reader, names: Set[str]) -> Steps[bool]:
    """Read one call. False if there is none: then the candidate is text."""
    if not (yield from reader.literal("{")):
        return False
    name: str | None = None
    arguments = ""
    while (key := (yield from _key(reader))) is not None:
        if key == "name" and name is None:
            name = yield from json_string(reader)
            if name not in names:
                return False
        elif key in ARGUMENTS and not arguments and name is not None:
            return (yield from _rest_of_call(reader, name))
        elif key not in (*ARGUMENTS, *_OTHERS) or not (value := (yield from json_value(reader))):
            return False
        elif key in ARGUMENTS:
            arguments = value
        if not (yield from _comma(reader)):
            break
    if name is None or not (yield from reader.literal("}")):
        return False
    return (yield from _whole(reader, name, arguments))


def _key(reader: Reader) -> Wait[str | None]:
    """Pass the name of a member and its colon."""
    yield from reader.space()
    key = yield from json_string(reader)
    yield from reader.space()
    if not (yield from reader.literal(":")):
        return None
    yield from reader.space()
    return key


def _comma(reader: Reader) -> Wait[bool]:
    yield from reader.space()
    return (yield from reader.literal(","))


def _rest_of_call(reader: Reader, name: str) -> Steps[bool]:
    """Read a call from its arguments on."""
    if (yield from reader.peek()) == "{":
        found = yield from streamed_arguments(reader, name)
    else:
        value = yield from json_value(reader)
        found = bool(value) and (yield from _whole(reader, name, value))
    if not found:
        return False
    while (yield from _comma(reader)) and (yield from _key(reader)) is not None:
        yield from json_value(reader)
    if (yield from reader.literal("}")):
        reader.accept()
    yield from reader.reject()
    return True


def streamed_arguments(reader: Reader, name: str) -> Steps[bool]:
    """Read a call whose arguments, an object, come next. They are passed on as they come. False if there is none."""
    syntax = len(reader.passed())
    if not (yield from reader.literal("{")):
        return False
    yield from reader.space()
    if (yield from reader.peek()) not in ('"', "}"):
        return False
    reader.drop(syntax)
    yield Call(name)
    for _ in bracketed(reader, JSON, "}"):
        yield from _arguments(reader)
        yield None
    yield from _arguments(reader)
    return True


def _arguments(reader: Reader) -> Steps[None]:
    if text := reader.accept():
        yield Arguments(text)


def _whole(reader: Reader, name: str, arguments: str) -> Steps[bool]:
    """The candidate as a call with these arguments. False if they are no object."""
    try:
        value = json.loads(arguments or "null", strict=False)
        if isinstance(value, str):  # an object as JSON, as JSON
            value = json.loads(value, strict=False)
            arguments = json.dumps(value)
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict | None):
        return False
    reader.accept()
    yield Call(name)
    yield Arguments("{}" if value is None else arguments)
    return True
