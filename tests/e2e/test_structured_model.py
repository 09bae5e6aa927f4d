"""Structured outputs of the demo model: what stops by itself is what was asked for, and neighbours notice nothing."""

import json
import re

import jsonschema
import pytest

from corelm import LLM, SamplingParams
from corelm.api import BatchError, InvalidRequestError, StructuredOutput

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

EXACT = {"dtype": "float32", "cpu": {"threads": 1}, "progress": False}
TREE = {"$ref": "#/$defs/n"}
NAME, COUNT = {"type": "string", "maxLength": 12}, {"type": "integer", "minimum": 0, "maximum": 999}


def strict(**properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


SCHEMAS = [
    strict(name=NAME, age=COUNT),
    strict(city=NAME, country={"enum": ["France", "Italy", "Spain"]}),
    strict(ok={"type": "boolean"}, reason={"type": "string", "maxLength": 20}),
    strict(tags={"type": "array", "items": NAME, "maxItems": 3}),
    strict(point=strict(x={"type": "number"}, y={"type": "number"})),
    strict(day={"type": "string", "format": "date"}, hour={"type": "integer", "minimum": 0, "maximum": 23}),
    strict(code={"type": "string", "pattern": "^[A-Z]{3}-[0-9]{2}$"}),
    {"anyOf": [strict(error=NAME), strict(result=COUNT)]},
    {"type": "array", "items": strict(id=COUNT), "minItems": 1, "maxItems": 2},
    {"enum": ["red", "green", "blue"]},
    strict(step={"const": "done"}, next={"type": ["string", "null"], "maxLength": 8}),
    {"$defs": {"n": strict(v=COUNT, kids={"type": "array", "items": TREE, "maxItems": 1})}, "$ref": "#/$defs/n"},
    {"type": "object", "properties": {"note": NAME}},
]


def structured(schema, **options):
    wanted = StructuredOutput(kind="json_schema", source=json.dumps(schema))
    return SamplingParams(**{"structured_output": wanted, "max_tokens": 60, **options})


def prompt_for(index):
    return [{"role": "user", "content": f"Answer in JSON, number {index}."}]


def check(outputs, schemas):
    """Every output that stopped validates; how many did."""
    stopped = 0
    for output, schema in zip(outputs, schemas, strict=True):
        if output.finish_reason == "stop":
            stopped += 1
            jsonschema.validate(json.loads(output.text), schema, cls=jsonschema.Draft202012Validator)
    return stopped


@pytest.fixture(scope="module")
def llm():
    with LLM(progress=False) as llm:
        yield llm


@pytest.fixture(scope="module")
def exact():
    with LLM(**EXACT, kv_cache_tokens=8192) as llm:
        yield llm


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"seed": 5}, {"seed": 6, "temperature": 1.5}], ids=str)
def test_every_schema_in_one_batch(llm, options):
    params = [structured(schema, **options) for schema in SCHEMAS]
    outputs = llm.chat([prompt_for(index) for index in range(len(SCHEMAS))], params)
    assert check(outputs, SCHEMAS) > len(SCHEMAS) / 2


def test_several_choices(llm):
    outputs = llm.chat(prompt_for(1), structured(SCHEMAS[0], n=4, seed=1, temperature=1.0))
    assert check(outputs, [SCHEMAS[0]] * 4) > 1
    assert len({output.text for output in outputs}) > 1


def test_log_probabilities_of_each_token(llm):
    (output,) = llm.chat(prompt_for(1), structured(SCHEMAS[0], logprobs=2, temperature=0.0))
    assert len(output.logprobs) == len(output.token_ids) == output.completion_tokens
    assert all(entry.logprob > -1000 for entry in output.logprobs)
    assert check([output], [SCHEMAS[0]])


@pytest.mark.parametrize(
    ("kind", "source", "expected"),
    [
        ("regex", r"[a-z]{2,8}@[a-z]{2,8}\.(com|org)", r"[a-z]{2,8}@[a-z]{2,8}\.(com|org)"),
        ("choice", '["yes", "no", "<|im_start|>maybe"]', "yes|no|<.im_start.>maybe"),
        ("grammar", 'start: "Q: " /[A-Z][a-z ]{3,12}/ "?"', r"Q: [A-Z][a-z ]{3,12}\?"),
    ],
)
def test_other_kinds(llm, kind, source, expected):
    params = SamplingParams(structured_output=StructuredOutput(kind=kind, source=source), seed=2, max_tokens=40)
    for output in llm.chat([prompt_for(index) for index in range(4)], params):
        assert output.finish_reason == "stop"
        assert re.fullmatch(expected, output.text)


@pytest.mark.parametrize("edits", [{"logit_bias": {28: 5.0}}, {"bad_words": ("France",)}, {"presence_penalty": 1.0}])
def test_other_edits_hold_beside_it(llm, edits):
    schema = SCHEMAS[1]
    (output,) = llm.chat(prompt_for(1), structured(schema, temperature=0.0, **edits))
    assert check([output], [schema])
    assert "bad_words" not in edits or "France" not in output.text


def test_what_leaves_nothing_to_sample_fails_alone(llm):
    letter = llm._engine.intake.tokenizer.encode("x", add_special_tokens=False)
    lost = structured({"enum": [1, 2]}, allowed_token_ids=tuple(letter))
    with pytest.raises(BatchError, match="structured_output, allowed_token_ids") as caught:
        llm.chat([prompt_for(1), prompt_for(2)], [lost, structured({"enum": [1, 2]})])
    assert json.loads(caught.value.results[1][0].text) in (1, 2)


def test_a_bad_schema_is_refused_alone(llm):
    bad = structured({"properties": {"a": "string"}})
    with pytest.raises(BatchError, match="#/properties/a") as caught:
        llm.chat([prompt_for(1), prompt_for(2)], [bad, structured({"enum": [1, 2]})])
    refused, (good,) = caught.value.results
    assert isinstance(refused, InvalidRequestError)
    assert json.loads(good.text) in (1, 2)


def test_neighbours_get_what_they_get_alone(exact):
    plain = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
    alone = exact.chat(prompt_for(0), plain)
    bound = [structured(schema, temperature=0.0, max_tokens=24) for schema in SCHEMAS[:4]]
    prompts = [prompt_for(0), *(prompt_for(index) for index in range(4))]
    together = exact.chat(prompts, [plain, *bound])
    assert together[0].token_ids == alone[0].token_ids
    singly = [exact.chat(prompt_for(index), params)[0].token_ids for index, params in enumerate(bound)]
    assert [output.token_ids for output in together[1:]] == singly


@pytest.mark.parametrize("swap", [0, 1024])
def test_preempted(exact, swap):
    schemas = [strict(name=NAME, text={"type": "string", "minLength": 40 + index}) for index in range(4)]
    params = [structured(schema, seed=index, max_tokens=40) for index, schema in enumerate(schemas)]
    prompts = [f"Number {index}:" for index in range(4)]
    expected = exact.generate(prompts, params)
    with LLM(**EXACT, kv_cache_tokens=128, swap_tokens=swap, max_model_len=128) as small:
        found = small.generate(prompts, params)
        assert small._engine.snapshot().preemptions
    assert [output.token_ids for output in found] == [output.token_ids for output in expected]
    check(found, schemas)
