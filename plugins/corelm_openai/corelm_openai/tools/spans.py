"""Where values in an output end, whether they are wanted or not."""

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from corelm_openai.reader import Reader, Wait

_IN_STRING = {quote: re.compile(rf"[^{quote}\\]+") for quote in "\"'"}
_SCALAR = re.compile(r"[\w.+-]+", re.ASCII)


class Syntax(NamedTuple):
    """What stands between the brackets of a language."""

    brackets: Mapping[str, str]
    """Closing brackets by opening ones."""
    quotes: str
    others: re.Pattern[str]
    """Everything else that may stand there."""


JSON = Syntax({"{": "}", "[": "]"}, '"', re.compile(r"[\w.+\-,:\s]+", re.ASCII))


def string(reader: Reader, quotes: str = '"') -> Wait[str | None]:
    """Pass a string and return it as it is written. None if there is none, or no end of it."""
    quote = yield from reader.peek()
    if not quote or quote not in quotes:
        return None
    parts = [quote]
    reader.skip()
    while True:
        parts.append((yield from reader.run(_IN_STRING[quote])))
        char = yield from reader.peek()
        if not char:
            return None
        reader.skip()
        parts.append(char)
        if char == quote:
            return "".join(parts)
        parts.append((yield from reader.peek()))
        reader.skip()


def bracketed(reader: Reader, syntax: Syntax, within: str = "") -> Wait[bool]:
    """Pass from a bracket to the one that closes it; True if there is one, and what is between looks right.

    `within` has the closing brackets of those that were passed already.
    """
    closing = list(within)
    while True:
        char = yield from reader.peek()
        if char and char in syntax.brackets:
            closing.append(syntax.brackets[char])
            reader.skip()
        elif closing and char == closing[-1]:
            closing.pop()
            reader.skip()
        elif char and char in syntax.quotes:
            if (yield from string(reader, syntax.quotes)) is None:
                return False
        elif not (yield from reader.run(syntax.others)):
            return False
        if not closing:
            return True


def json_string(reader: Reader) -> Wait[str | None]:
    """Pass a JSON string and return what it says; None if there is none."""
    text = yield from string(reader)
    try:
        value = None if text is None else json.loads(text, strict=False)
    except ValueError:
        return None
    return value if isinstance(value, str) else None


def json_value(reader: Reader) -> Wait[str]:
    """Pass one JSON value and return it as it is written; empty if there is none, or no end of it."""
    char = yield from reader.peek()
    if char == '"':
        return (yield from string(reader)) or ""
    if char in ("{", "["):
        before = reader.passed()
        complete = yield from bracketed(reader, JSON)
        return reader.passed()[len(before) :] if complete else ""
    return (yield from reader.run(_SCALAR))
