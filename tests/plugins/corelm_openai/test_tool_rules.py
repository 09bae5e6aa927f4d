"""Grammars that force calls, compiled by llguidance: whatever they let through is calls that fit the schemas."""

import json
import random

import jsonschema
import pytest
from corelm_openai.chat.model_formats import BUILT_IN_FORMATS
from corelm_openai.formats import ToolFunction
from corelm_openai.generation.structured import Form
from corelm_openai.tools.forcing import with_calls
from corelm_openai.tools.formats import TOOL_FORMATS
from corelm_openai.tools.offer import Offer
from corelm_openai.tools.rules import bare
from tool_texts import read

from corelm.api import InvalidRequestError, StructuredOutput

llguidance = pytest.importorskip("llguidance")

MARKERS = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>"]
EOS = 256
FIRST_MARKER = EOS + 1
PLACE = {"$defs": {"place": {"type": "string", "pattern": "^[a-z]{1,5}$"}}}
FUNCTIONS = [
    ToolFunction(
        name="get_weather",
        description="",
        parameters={
            "type": "object",
            "properties": {"place": {"$ref": "#/$defs/place"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["place"],
            "additionalProperties": False,
            **PLACE,
        },
    ),
    ToolFunction(
        name="f",
        description="",
        parameters={"type": "object", "properties": {"a": {"type": "boolean"}}, "additionalProperties": False},
    ),
]


class Bytes:
    """A vocabulary of bytes, an end token and the markers, of which some are special."""

    bos_token_id = None
    eos_token_id = EOS

    def __init__(self, special):
        self.tokens = [bytes([byte]) for byte in range(256)] + [b"</s>", *(text.encode() for text in MARKERS)]
        self.special_token_ids = [EOS, *(FIRST_MARKER + MARKERS.index(text) for text in special)]

    def __call__(self, text):
        return list(text)


def matcher_of(source, vocabulary):
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(vocabulary), n_vocab=len(vocabulary.tokens))
    matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_lark(source))
    assert not matcher.is_error(), matcher.get_error()
    return matcher


def lets_through(source, text):
    matcher = matcher_of(source, Bytes(()))
    return matcher.try_consume_tokens(list(text.encode())) == len(text.encode()) and matcher.is_accepting()


def sample(source, seed, special=(), longest=2000):
    """An output that the grammar lets through, ended where it may end."""
    vocabulary = Bytes(special)
    matcher = matcher_of(source, vocabulary)
    generator = random.Random(seed)
    tokens = []
    while not matcher.is_stopped() and len(tokens) < longest:
        if matcher.is_accepting() and generator.random() < 0.5:
            break
        mask = matcher.compute_bitmask()
        allowed = [token for token in range(len(vocabulary.tokens)) if mask[token // 8] >> token % 8 & 1]
        tokens.append(generator.choice([token for token in allowed if token != EOS] or allowed))
        assert matcher.consume_token(tokens[-1])
    assert matcher.is_accepting()
    return b"".join(vocabulary.tokens[token] for token in tokens if token != EOS).decode()


def forced(form, *, parallel=True, tokens=(), functions=FUNCTIONS):
    offered = Offer(FUNCTIONS, [], functions, False, parallel)
    ids = {text: FIRST_MARKER + MARKERS.index(text) for text in tokens}
    return with_calls(None, offered, TOOL_FORMATS[form](), ids).output.source


def check_calls(found, functions=FUNCTIONS):
    schemas = {function.name: function.parameters for function in functions}
    assert found
    for name, arguments in found:
        jsonschema.validate(json.loads(arguments), schemas[name])


SPECIAL = [
    ("hermes", ()),
    ("hermes", ("<tool_call>", "</tool_call>")),
    ("llama3_json", ()),
    ("mistral", ("[TOOL_CALLS]",)),
    ("mistral", ("[TOOL_CALLS]", "[ARGS]")),
    ("pythonic", ()),
]


@pytest.mark.parametrize(("form", "special"), SPECIAL)
def test_what_is_forced_are_calls(form, special):
    several = 0
    for seed in range(12):
        found = read(form, [sample(forced(form, tokens=special), seed, special)], {"f", "get_weather"})
        check_calls(found)
        several += len(found) > 1
    assert several
    for seed in range(6):
        found = read(form, [sample(forced(form, tokens=special, parallel=False), seed, special)], {"f", "get_weather"})
        assert len(found) == 1


@pytest.mark.parametrize("form", TOOL_FORMATS)
def test_only_what_is_forced_is_called(form):
    for seed in range(4):
        found = read(form, [sample(forced(form, functions=FUNCTIONS[1:]), seed)], {"f", "get_weather"})
        assert {name for name, _ in found} == {"f"}


@pytest.mark.parametrize("form", TOOL_FORMATS)
def test_an_answer_of_a_form_or_calls(form):
    properties = {"name": {"type": "string", "maxLength": 9}, "answer": {"type": "boolean"}}
    schema = {"type": "object", "properties": properties, "required": ["name"], "additionalProperties": False}
    asked = Form("response_format", StructuredOutput(kind="json_schema", source=json.dumps(schema)))
    made = with_calls(asked, Offer(FUNCTIONS, [], (), False, True), BUILT_IN_FORMATS.tools(form, None), {})
    assert made.param == "response_format"
    for answer in ({"name": "f"}, {"name": "x", "answer": True}):
        assert lets_through(made.output.source, json.dumps(answer))
    assert not lets_through(made.output.source, '{"name": 5}')
    for seed in range(6):
        calls = sample(forced(form), seed)
        assert lets_through(made.output.source, calls)
        check_calls(read(form, [calls], {"f", "get_weather"}))


def test_what_does_not_go_together():
    asked = Form("guided_regex", StructuredOutput(kind="regex", source="a"))
    for functions in ((), FUNCTIONS):
        with pytest.raises(InvalidRequestError, match="guided_regex does not go together with") as caught:
            with_calls(asked, Offer(FUNCTIONS, [], functions, False, True), TOOL_FORMATS["hermes"](), {})
        assert caught.value.param == "guided_regex"
    many = [ToolFunction(name="f" * 60, description="", parameters={"type": "object", "x": "y" * 2**18})]
    with pytest.raises(InvalidRequestError, match="tool_choice must have a source of") as caught:
        with_calls(None, Offer(many, [], many, False, True), TOOL_FORMATS["hermes"](), {})
    assert caught.value.param == "tool_choice"


def test_what_only_explains_is_left_out():
    properties = {"title": {"type": "string", "title": "x", "description": "x"}, "default": {"enum": [{"title": 1}]}}
    schema = {"title": "x", "properties": properties, "items": [{"$comment": "x"}, True], "const": {"default": 1}}
    assert bare(schema) == {
        "properties": {"title": {"type": "string"}, "default": {"enum": [{"title": 1}]}},
        "items": [{}, True],
        "const": {"default": 1},
    }
