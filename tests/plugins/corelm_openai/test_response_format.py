"""What an output must look like, in OpenAI's words and in vLLM's."""

import json

import pytest
from openai_http import assert_error

from corelm.api import InvalidRequestError, StructuredOutput

SCHEMA = {"type": "object", "properties": {"a": {"maximum": 20_000_000_000}}, "required": ["a"]}
TEXT = json.dumps(SCHEMA)
ANY = '{"type": "object"}'

both = pytest.mark.parametrize("endpoint", ["completions", "chat"])


async def ask(http, endpoint, **body):
    return await (http.complete if endpoint == "completions" else http.chat)(**body)


def json_schema(**values):
    return {"response_format": {"type": "json_schema", "json_schema": values}}


@both
@pytest.mark.parametrize(
    ("body", "kind", "source"),
    [
        ({"response_format": {"type": "json_object"}}, "json_schema", ANY),
        (json_schema(name="x", schema=SCHEMA), "json_schema", TEXT),
        (json_schema(name="x-1", schema=SCHEMA, strict=True, description="y"), "json_schema", TEXT),
        (json_schema(name="x", schema={}), "json_schema", "{}"),
        (json_schema(name="x", schema=True), "json_schema", "true"),
        ({"guided_json": SCHEMA}, "json_schema", TEXT),
        ({"guided_json": TEXT}, "json_schema", TEXT),
        ({"guided_json": {}}, "json_schema", "{}"),
        ({"guided_regex": "[a-z]+"}, "regex", "[a-z]+"),
        ({"guided_choice": ["a", 'é"']}, "choice", '["a", "é\\""]'),
        ({"guided_grammar": 'start: "a"'}, "grammar", 'start: "a"'),
        ({"structured_outputs": {"json": SCHEMA}}, "json_schema", TEXT),
        ({"structured_outputs": {"regex": "a"}}, "regex", "a"),
        ({"structured_outputs": {"choice": ["a"], "json_object": False}}, "choice", '["a"]'),
        ({"structured_outputs": {"grammar": "start: /a/"}}, "grammar", "start: /a/"),
        ({"structured_outputs": {"json_object": True}}, "json_schema", ANY),
    ],
)
async def test_the_form_reaches_the_engine(http, engine, endpoint, body, kind, source):
    assert (await ask(http, endpoint, **body)).status_code == 200
    output = engine.calls[0]["params"].structured_output
    assert output.kind == kind
    if kind == "json_schema":
        assert json.loads(output.source) == json.loads(source)
    else:
        assert output == StructuredOutput(kind=kind, source=source)


@both
@pytest.mark.parametrize(
    "body",
    [
        {"response_format": {"type": "text"}, "guided_json": None, "structured_outputs": None, "guided_regex": None},
        {"response_format": None, "guided_choice": None, "guided_grammar": None},
        {"response_format": {"type": "text", "json_schema": None}},
    ],
)
async def test_text_is_no_form(http, engine, endpoint, body):
    assert (await ask(http, endpoint, **body)).status_code == 200
    assert engine.calls[0]["params"].structured_output is None


@both
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"response_format": "text"}, "response_format"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"schema": {}}}, "response_format.type"),
        ({"response_format": {"type": "banana"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": None}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, "response_format.json_schema"),
        (json_schema(schema=SCHEMA), "response_format.json_schema.name"),
        (json_schema(name="", schema=SCHEMA), "response_format.json_schema.name"),
        (json_schema(name="a b", schema=SCHEMA), "response_format.json_schema.name"),
        (json_schema(name="x" * 65, schema=SCHEMA), "response_format.json_schema.name"),
        (json_schema(name="x"), "response_format.json_schema.schema"),
        (json_schema(name="x", schema=None), "response_format.json_schema.schema"),
        (json_schema(name="x", schema="{}"), "response_format.json_schema.schema"),
        (json_schema(name="x", schema=[]), "response_format.json_schema.schema"),
        (json_schema(name="x", schema={"x": "y" * 2**18}), "response_format.json_schema.schema"),
        ({"guided_json": 5}, "guided_json"),
        ({"guided_json": "5"}, "guided_json"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_regex": ""}, "guided_regex"),
        ({"guided_regex": "x" * 2**20}, "guided_regex"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": "a"}, "guided_choice"),
        ({"guided_choice": [1]}, "guided_choice[0]"),
        ({"guided_choice": ["a"] * 100_000}, "guided_choice"),
        ({"guided_grammar": ""}, "guided_grammar"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs"),
        ({"structured_outputs": {"json": 5}}, "structured_outputs.json"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs.choice"),
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex"),
        ({"guided_json": {}, "structured_outputs": {"regex": "a"}}, "guided_json"),
        ({"response_format": {"type": "json_object"}, "use_beam_search": True, "n": 2}, "response_format"),
    ],
)
async def test_wrong_forms_are_refused(http, engine, endpoint, stream, body, param):
    message = assert_error(await ask(http, endpoint, stream=stream, **body), 400, param=param)
    assert param.partition(".")[0].partition("[")[0] in message
    assert not engine.calls


@both
async def test_what_the_compiler_says_names_the_clients_field(http, engine, endpoint):
    engine.refuse[0] = InvalidRequestError("structured_output: no such type", param="structured_output")
    message = assert_error(await ask(http, endpoint, **json_schema(name="x", schema=SCHEMA)), 400)
    assert message == "response_format: no such type"
    engine.refuse[1] = InvalidRequestError("structured_output: ( is not closed", param="structured_output")
    assert_error(await ask(http, endpoint, guided_regex="("), 400, param="guided_regex")


@both
@pytest.mark.parametrize("stream", [False, True])
async def test_a_grammar_that_becomes_too_complex_is_the_requests_fault(http, engine, endpoint, stream):
    engine.fail_with = InvalidRequestError("structured_output: too many items", param="structured_output")
    failed = await ask(http, endpoint, stream=stream, guided_regex="a*")
    assert assert_error(failed, 400, param="guided_regex") == "guided_regex: too many items"


async def test_odd_bytes_in_a_schema(http):
    for text in (b'"\\ud800"', b'"\xff"', b"{" + b'"a":{' * 50_000):
        body = b'{"model": "fake", "prompt": "a", "guided_json": ' + text + b"}"
        assert_error(await http.post("/v1/completions", content=body), 400)
