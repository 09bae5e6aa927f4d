"""From what a client sends to the text of a grammar for llguidance, or a clear refusal.

The library bounds its own work, but not how deep it recurses, nor the time for a long regular expression.
"""

import json
import re
from typing import Any

from llguidance import LLMatcher

from corelm.api import InvalidRequestError, StructuredOutput
from corelm_llguidance.schemas import check_schema

LONGEST_REGEX = 2**13
LONGEST_GRAMMAR = 2**14
DEEPEST_SCHEMA = 64
"""Objects and arrays within each other."""
DEEPEST_REFERENCES = 2**12
"""The depth of a schema times the number of its references, which bounds how deep they lead."""
MOST_CHOICES = 2**12
JSON_STYLE: Any = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "coerce_one_of": False,
    "lenient": False,
}
"""As `json.dumps` writes. Models know the style, no whitespace goes on for ever, and most of it need not be sampled."""

_SCHEMA_FOLLOWS = re.compile(r"%json\s*")
_decoder = json.JSONDecoder()
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)


def grammar_of(wanted: StructuredOutput) -> str:
    """The text of a grammar. Raises `InvalidRequestError`."""
    source = _checked(wanted.source)
    match wanted.kind:
        case "json_schema":
            return _from_schema(source)
        case "regex":
            return LLMatcher.grammar_from_regex(_regex(_limited(source, LONGEST_REGEX, "a regular expression")))
        case "choice":
            return LLMatcher.grammar_from_lark(f"start: {' | '.join(map(json.dumps, _choices(source)))}")
        case "grammar":
            _limited(_without_schemas(source), LONGEST_GRAMMAR, "a grammar without its schemas")
            return LLMatcher.grammar_from_lark(source)


def _limited(source: str, longest: int, what: str) -> str:
    if len(source) > longest:
        raise InvalidRequestError(f"{what} may have at most {longest} characters, not {len(source)}")
    return source


def _regex(source: str) -> str:
    """The same. llguidance would leave out half of an escape at the end."""
    if (len(source) - len(source.rstrip("\\"))) % 2:
        raise InvalidRequestError("a regular expression ends in the middle of an escape")
    return source


def _choices(source: str) -> list[str]:
    choices = _parse(source, "a choice")
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        raise InvalidRequestError("a choice must be a list of strings")
    if not 1 <= len(choices) <= MOST_CHOICES:
        raise InvalidRequestError(f"a choice must have 1 to {MOST_CHOICES} strings, not {len(choices)}")
    return [_checked(choice) for choice in choices]


def _checked(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError("the source holds half of a surrogate pair") from error
    return text


def _without_schemas(source: str) -> str:
    """A grammar without what follows each ``%json``, which is checked as a schema. What is no JSON stays."""
    parts, end = [], 0
    while found := _SCHEMA_FOLLOWS.search(source, end):
        parts.append(source[end : found.end()])
        end = found.end()
        try:
            schema, end = _decoder.raw_decode(source, end)
        except RecursionError as error:
            raise InvalidRequestError("a grammar's schema is nested too deeply") from error
        except ValueError:
            continue
        text = source[found.end() : end]
        _check_depth(text, "a grammar's schema")
        check_schema(schema)
        _check_references(text)
    return "".join([*parts, source[end:]])


def _check_depth(source: str, what: str) -> None:
    depth = _depth(source)
    if depth > DEEPEST_SCHEMA:
        raise InvalidRequestError(f"{what} may be nested {DEEPEST_SCHEMA} deep, not {depth}")


def _from_schema(source: str) -> str:
    _check_depth(source, "a schema")
    schema = _parse(source, "a schema")
    check_schema(schema)
    if isinstance(schema, bool):
        if not schema:
            raise InvalidRequestError("nothing can match the schema false")
        source = "{}"
    _check_references(source)
    try:
        return LLMatcher.grammar_from_json_schema(source, overrides=JSON_STYLE)
    except ValueError as error:
        raise InvalidRequestError(str(error)) from error


def _check_references(source: str) -> None:
    depth = _depth(source)
    references = source.count('"$ref"') + source.count('"$dynamicRef"')
    if depth * references > DEEPEST_REFERENCES:
        raise InvalidRequestError(
            f"a schema that is nested {depth} deep may have at most {DEEPEST_REFERENCES // depth} references, "
            f"not {references}"
        )


def _depth(source: str) -> int:
    """How deep brackets are nested in a text that may be JSON."""
    depth = deepest = 0
    for found in _STRING_OR_BRACKET.finditer(source):
        bracket = found.group()
        if bracket in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif bracket in "]}":
            depth -= 1
    return deepest


def _parse(source: str, what: str) -> Any:
    try:
        return json.loads(source, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise InvalidRequestError(f"{what} is nested too deeply") from error
    except ValueError as error:
        raise InvalidRequestError(f"{what} must be JSON: {error}") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
