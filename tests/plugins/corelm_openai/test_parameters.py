import json
import time

import pytest
from openai_http import assert_error

from corelm.api import SamplingParams

HUGE = 2**70


async def ask(http, endpoint, **body):
    return await (http.complete if endpoint == "completions" else http.chat)(**body)


both = pytest.mark.parametrize("endpoint", ["completions", "chat"])


@both
async def test_everything_reaches_the_engine(http, engine, endpoint):
    values = {
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 7,
        "min_p": 0.25,
        "seed": 11,
        "ignore_eos": True,
        "max_tokens": 4,
        "skip_special_tokens": False,
    }
    response = await ask(http, endpoint, **values, stop=["x", "y"], stop_token_ids=[3, 4], user="joe", priority=-3)
    assert response.status_code == 200
    (call,) = engine.calls
    assert call["params"] == SamplingParams(**values, stop=("x", "y"), stop_token_ids=(3, 4))
    assert (call["tenant"], call["priority"]) == ("joe", -3)
    assert call["request_id"] == response.json()["id"] + "-0"


@both
async def test_null_is_the_default(http, engine, endpoint):
    names = "temperature top_p top_k min_p seed stop ignore_eos n stream stream_options user priority max_tokens"
    names += " stop_token_ids skip_special_tokens chat_template_kwargs tools prompt_logprobs truncate_prompt_tokens"
    assert (await ask(http, endpoint, **dict.fromkeys(names.split()))).status_code == 200
    (call,) = engine.calls
    assert call["params"] == SamplingParams(max_tokens=16 if endpoint == "completions" else None)
    assert (call["tenant"], call["priority"]) == (None, 0)


@pytest.mark.parametrize(
    ("stop", "seen"), [("x", ("x",)), (["x"], ("x",)), ([], ()), (None, ()), (["🙂", " ", "é"], ("🙂", " ", "é"))]
)
async def test_stop(http, engine, stop, seen):
    await http.complete(stop=stop)
    assert engine.calls[0]["params"].stop == seen


@both
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("temperature", value) for value in (-0.1, 2.1, "1", True, HUGE, [])],
        *[("top_p", value) for value in (0, -1, 1.1, "0.5")],
        *[("top_k", value) for value in (-5, 1.5, "3", HUGE)],
        *[("min_p", value) for value in (-0.1, 1.1, "x")],
        *[("seed", value) for value in (HUGE, -HUGE, 1.5, "7")],
        *[("n", value) for value in (0, -1, 17, 10**6, HUGE, "2", 1.5, True)],
        *[("max_tokens", value) for value in (0, -1, HUGE, "5", 2.5)],
        *[("stop", value) for value in ("", ["", "x"], ["x"] * 17, "x" * 2000, 5)],
        *[("stream", value) for value in ("yes", 1)],
        *[("priority", value) for value in ("high", 1.5, HUGE, True)],
        ("user", 5),
        *[("stop_token_ids", value) for value in (5, [-1], [HUGE], [1] * 17)],
        ("skip_special_tokens", 1),
        ("ignore_eos", "no"),
        ("stream_options", {"include_usage": True}),
    ],
)
async def test_values_out_of_range(http, engine, endpoint, name, value):
    assert_error(await ask(http, endpoint, **{name: value}), 400, param=name)
    assert not engine.calls


async def test_a_stop_that_is_not_text(http):
    assert_error(await http.complete(stop=["x", 5]), 400, param="stop[1]")


@both
@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "presence_penalty", "seed"])
@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
async def test_numbers_that_are_none(http, endpoint, name, text):
    prompt = {"prompt": "a"} if endpoint == "completions" else {"messages": [{"role": "user", "content": "a"}]}
    body = json.dumps({"model": "fake", **prompt})[:-1] + f', "{name}": {text}}}'
    response = await http.post(f"/v1/{endpoint}" if endpoint == "completions" else "/v1/chat/completions", content=body)
    assert_error(response, 400)


@both
@pytest.mark.parametrize(
    "values",
    [
        {"presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "logprobs": False, "top_logprobs": 0},
        {"response_format": {"type": "text"}, "tools": [], "tool_choice": "auto", "functions": None, "best_of": 1},
        {"tool_choice": "none", "echo": False, "suffix": None, "repetition_penalty": 1.0, "modalities": ["text"]},
        {"metadata": {"a": "b"}, "store": True, "service_tier": "auto", "parallel_tool_calls": True, "unknown": [1]},
        {"bad_words": [], "documents": [], "grammar": "", "mirostat": 0, "length_penalty": 1.0, "typical_p": 1},
        {"use_beam_search": False, "continue_final_message": False, "include_stop_str_in_output": False},
    ],
)
async def test_what_asks_for_nothing_is_accepted(http, endpoint, values):
    assert (await ask(http, endpoint, **values)).status_code == 200


@both
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("presence_penalty", 0.5),
        ("frequency_penalty", -2),
        ("repetition_penalty", 0),
        ("repetition_penalty", -1),
        ("logit_bias", {"5": -100}),
        ("logprobs", True),
        ("logprobs", 5),
        ("top_logprobs", 10**5),
        ("echo", True),
        ("suffix", "x"),
        ("best_of", 3),
        ("best_of", 10**6),
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "function": {"name": "f"}}),
        ("functions", [{"name": "f"}]),
        ("modalities", ["text", "audio"]),
        ("guided_json", {}),
        ("guided_regex", "("),
        ("bad_words", ["x"]),
        ("prompt_logprobs", 0),
        ("continue_final_message", True),
        ("truncate_prompt_tokens", 1),
        ("length_penalty", 0.5),
        ("use_beam_search", True),
        ("typical_p", 0.9),
        ("mirostat", 2),
        ("grammar", "root ::= x"),
        ("documents", [{"text": "x"}]),
        ("allowed_token_ids", [1]),
        ("include_stop_str_in_output", True),
        ("response_format", {"type": "json_object"}),
        ("response_format", {"type": "json_schema", "json_schema": None}),
        ("response_format", {"type": "banana"}),
        ("response_format", {"schema": {}}),
        ("response_format", "text"),
    ],
)
async def test_what_is_not_supported_is_refused_by_name(http, engine, endpoint, stream, name, value):
    message = assert_error(await ask(http, endpoint, stream=stream, **{name: value}), 400, param=name)
    assert name in message
    assert not engine.calls


async def test_best_of_as_many_as_n(http):
    assert (await http.complete(n=2, best_of=2)).status_code == 200


async def test_legacy_logprobs_of_zero_asks_for_something(http):
    assert_error(await http.complete(logprobs=0), 400, param="logprobs")


@pytest.mark.parametrize(
    ("seed", "seen"), [(None, [None] * 3), (5, [5, 6, 7]), (2**63 - 2, [2**63 - 2, 2**63 - 1, -(2**63)])]
)
async def test_choices_have_seeds_of_their_own(http, engine, seed, seen):
    await http.complete(n=3, seed=seed)
    assert [call["params"].seed for call in engine.calls] == seen
    assert len({call["request_id"] for call in engine.calls}) == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop", ["x"] * 500_000),
        ("stop_token_ids", [1] * 500_000),
        ("n", 10**6),
        ("logit_bias", {str(number): 1 for number in range(100_000)}),
        ("tools", [[]] * 1_500_000),
        ("chat_template_kwargs", {"x": [[]] * 1_500_000}),
        ("messages", [{"role": "user", "content": ""}] * 100_000),
        ("prompt", [[]] * 1_500_000),
        ("prompt", [1] * 500_000),
    ],
)
async def test_cheap_to_ask_is_cheap_to_refuse(http, name, value):
    """Without care each list within costs time, most of it in the garbage collector."""
    prompt = {"prompt": "a"} if name == "prompt" else {"messages": [{"role": "user", "content": "a"}]}
    data = json.dumps({"model": "fake", **prompt, name: value}).encode()
    start = time.process_time()
    path = "/v1/completions" if name == "prompt" else "/v1/chat/completions"
    assert_error(await http.post(path, content=data), 400)
    assert time.process_time() - start < 0.3


async def test_odd_values_of_unsupported_fields(http):
    for text in (b'"\\ud800"', b'{"type":  "text"' + b" " * 100 + b"}"):
        body = b'{"model": "fake", "prompt": "a", "response_format": ' + text + b"}"
        assert_error(await http.post("/v1/completions", content=body), 400)
