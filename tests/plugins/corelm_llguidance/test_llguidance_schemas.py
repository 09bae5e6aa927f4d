"""JSON Schemas: what ends validates, nothing runs for ever, and a wrong schema is told what is wrong with it."""

import json
import math
import re

import jsonschema
import pytest
from corelm_llguidance.json_runs import MOST_DIGITS, JsonRuns
from corelm_llguidance.vocabulary import Vocabulary
from walks import compiled, compiler, walk

from corelm.api import InvalidRequestError, RequestFailedError, StructuredOutput
from corelm.testing import FakeTokenizer, allowed_tokens, mask_of

POINT = {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}, "required": ["x", "y"]}
SCHEMAS = {
    "anything": {},
    "object": {"type": "object"},
    "strict": POINT | {"additionalProperties": False},
    "open": POINT,
    "types": {"type": ["integer", "null", "boolean"]},
    "enum": {"enum": ["a", 1, None, {"b": [True]}, 'ü\n"\\']},
    "const": {"const": {"nested": [1, 2.5, {}]}},
    "bounds": {"type": "integer", "minimum": -7, "exclusiveMaximum": 20_000_000_000},
    "decimals": {"type": "number", "minimum": 0.5, "maximum": 0.75},
    "multiple": {"type": "integer", "multipleOf": 7, "minimum": 1},
    "string": {"type": "string", "minLength": 2, "maxLength": 5},
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
    "formats": {
        "type": "object",
        "properties": {name: {"type": "string", "format": name} for name in ("date", "time", "uuid", "ipv4", "email")},
        "required": ["date", "time", "uuid", "ipv4", "email"],
        "additionalProperties": False,
    },
    "array": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    "tuple": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False, "minItems": 2},
    "any": {"anyOf": [{"type": "string", "maxLength": 3}, POINT, {"type": "array", "items": POINT}]},
    "one": {
        "oneOf": [
            {"type": "object", "properties": {"kind": {"const": kind}, kind: {"type": "integer"}}, "required": ["kind"]}
            for kind in ("a", "b")
        ]
    },
    "all": {"allOf": [POINT, {"properties": {"z": {"type": "null"}}, "required": ["z"]}]},
    "recursive": {
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": []}},
        "$ref": "#/$defs/node",
    },
    "maps": {"type": "object", "patternProperties": {"^n_": {"type": "integer"}}, "additionalProperties": False},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_ends_parses_and_validates(name):
    schema = SCHEMAS[name]
    compiler_, grammar = compiled("json_schema", json.dumps(schema))
    ended = 0
    for seed in range(20):
        text, whole = walk(compiler_, grammar, seed=seed, forced=bool(seed % 2), most=3000)
        if whole:
            ended += 1
            jsonschema.validate(json.loads(text), schema, cls=jsonschema.Draft202012Validator)
    assert ended > 10


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"type": "array"}, SCHEMAS["open"]], ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_a_model_that_loves_whitespace(schema, seed):
    compiler_, grammar = compiled("json_schema", json.dumps(schema))
    text, _ = walk(compiler_, grammar, seed=seed, likes=b" \n\r\t", most=400)
    outside = re.sub(rb'"(?:[^"\\]|\\.)*("|$)', b"", text)
    assert not re.search(rb"\s\s", outside)
    assert not re.match(rb"\s", text)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "number"},
        {"type": "integer"},
        {},
        {"type": "array", "minItems": 2, "maxItems": 3, "items": {"type": "number"}},
    ],
)
@pytest.mark.parametrize("likes", [b"0123456789", b"0123456789.", b"eE123456789+", b"-.123456789"], ids=repr)
def test_a_model_that_loves_digits(schema, likes):
    compiler_, grammar = compiled("json_schema", json.dumps(schema))
    for seed in range(3):
        text, whole = walk(compiler_, grammar, seed=seed, likes=likes)
        assert whole
        assert len(text) < 400
        numbers = json.loads(text)
        assert all(math.isfinite(number) for number in (numbers if isinstance(numbers, list) else [numbers]))


def test_what_the_schema_wants_is_not_too_long():
    vocabulary = Vocabulary(FakeTokenizer(), 258)
    runs = JsonRuns(vocabulary)
    runs.feed(b"[1" + MOST_DIGITS * b"2")
    digits, end = mask_of(b"0123456789", 258), mask_of(b"05,]", 258)
    assert allowed_tokens(runs.limit(end)) == sorted(b",]")
    assert runs.limit(digits) == digits


def test_digits_in_strings_are_only_characters():
    compiler_, grammar = compiled("json_schema", '{"type": "string", "pattern": "^[0-9]{300}$"}')
    text, whole = walk(compiler_, grammar)
    assert whole
    assert len(json.loads(text)) == 300


def test_a_string_without_a_limit_ends(monkeypatch):
    monkeypatch.setattr("corelm_llguidance.json_runs.LONGEST_STRING", 100)
    compiler_, grammar = compiled("json_schema", '{"type": "array", "items": {"type": "string"}, "maxItems": 3}')
    for likes in (b"a", b"\\u0123456789", "\\n\xe6\xbc\xa2".encode("latin-1")):
        text, whole = walk(compiler_, grammar, likes=likes)
        assert whole
        assert all(90 < len(one) <= 110 for one in re.findall(rb'"[^"]*"', text)[:1])
        json.loads(text)


def test_a_string_as_long_as_the_schema_wants(monkeypatch):
    monkeypatch.setattr("corelm_llguidance.json_runs.LONGEST_STRING", 100)
    compiler_, grammar = compiled("json_schema", '{"type": "string", "minLength": 300, "maxLength": 400}')
    text, whole = walk(compiler_, grammar, likes=b"a")
    assert whole
    assert len(json.loads(text)) == 300


def test_most_of_a_strict_object_is_forced():
    matcher = compiled("json_schema", json.dumps(SCHEMAS["strict"]))[1].matcher()
    assert bytes(matcher.forced()) == b'{"x": '


BAD = {
    "not JSON": ("{", "must be JSON"),
    "half a file": ('{"type": "object"', "must be JSON"),
    "NaN": ('{"const": NaN}', "NaN is no JSON number"),
    "a list": ("[1]", "#: a schema must be an object"),
    "null": ("null", "#: a schema must be an object"),
    "a string for a schema": ('{"properties": {"a": "string"}}', "#/properties/a: a schema must be an object"),
    "a list for properties": ('{"properties": []}', "#/properties: must be an object of schemas"),
    "an object for anyOf": ('{"anyOf": {}}', "#/anyOf: must be a list"),
    "a number in a list": ('{"items": {"allOf": [{}, 3]}}', "#/items/allOf/1: a schema"),
    "false": ("false", "nothing can match"),
    "contradiction": ('{"type": "integer", "minimum": 5, "maximum": 3}', "minimum .5. is greater than maximum .3."),
    "two types": ('{"allOf": [{"type": "string"}, {"type": "integer"}]}', "[Uu]nsatisfiable"),
    "no text": ('{"$ref": "#"}', "no text can match it"),
    "unknown type": ('{"type": "banana"}', "banana"),
    "unknown format": ('{"type": "string", "format": "banana"}', "banana"),
    "unsupported": ('{"not": {"type": "string"}}', "not"),
    "uniqueItems": ('{"type": "array", "uniqueItems": true}', "uniqueItems"),
    "ambiguous oneOf": ('{"oneOf": [{"type": "number"}, {"type": "integer"}]}', "oneOf"),
    "a bad pattern": ('{"type": "string", "pattern": "("}', "unclosed group"),
    "look-ahead": ('{"type": "string", "pattern": "(?=a)a"}', "look-ahead"),
    "elsewhere": ('{"$ref": "http://localhost:1/schema.json"}', "localhost:1"),
    "nowhere": ('{"$ref": "#/$defs/a"}', "/\\$defs/a"),
    "beyond doubles": ('{"type": "number", "maximum": 1e400}', "out of range"),
    "options": ('{"x-guidance": {"lenient": true}, "not": {}}', "not"),
    "deep": ('{"a":' * 65 + "1" + "}" * 65, "64 deep, not 65"),
    "very deep": ("[" * 200_000, "64 deep, not 200000"),
    "deep strings": ('"' + "[" * 1000 + '"', "#: a schema must be an object"),
    "surrogates": ('"\ud800"', "surrogate"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_schema_is_refused_each_time_with_a_reason(name):
    source, reason = BAD[name]
    compiler_ = compiler()
    for _ in range(2):
        with pytest.raises((InvalidRequestError, RequestFailedError), match=reason) as caught:
            compiler_.masks([compiler_.compile(StructuredOutput(kind="json_schema", source=source)).matcher()])
        assert len(str(caught.value)) < 400
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("maximum", [20_000_000_000, 2**63, 10**30])
def test_large_numbers_are_fine(maximum):
    compiler_, grammar = compiled("json_schema", json.dumps({"type": "integer", "minimum": 0, "maximum": maximum}))
    text, whole = walk(compiler_, grammar, likes=b"123456789")
    assert whole
    assert 0 <= json.loads(text) <= maximum


def test_clients_cannot_change_how_it_is_compiled():
    source = json.dumps({"x-guidance": {"whitespace_flexible": True}, "type": "array"})
    compiler_, grammar = compiled("json_schema", source)
    text, _ = walk(compiler_, grammar, likes=b"[ \n", most=50)
    assert not re.search(rb"\s\s|\n", text)
