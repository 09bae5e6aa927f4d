import json
import time

import pytest
from corelm_openai.settings import OpenAISettings
from openai_http import Http, assert_error

from corelm.api import RequestOptions, SamplingParams

HUGE = 2**70


async def ask(http, endpoint, **body):
    return await (http.complete if endpoint == "completions" else http.chat)(**body)


both = pytest.mark.parametrize("endpoint", ["completions", "chat"])


@both
async def test_everything_reaches_the_engine(http, engine, endpoint):
    values = {
        "n": 2,
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 7,
        "min_p": 0.25,
        "presence_penalty": -2,
        "frequency_penalty": 1.5,
        "repetition_penalty": 1.25,
        "seed": 11,
        "ignore_eos": True,
        "max_tokens": 4,
        "min_tokens": 2,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "include_stop_str_in_output": True,
        "truncate_prompt_tokens": 9,
        "prompt_logprobs": 3,
    }
    lists = {"stop": ["x", "y"], "stop_token_ids": [3, 4], "bad_words": ["z"], "allowed_token_ids": [5, 6]}
    values["logits_processors"] = {"no_repeat_ngram": 2, "other": {"a": [1, None]}}
    response = await ask(http, endpoint, **values, **lists, logit_bias={"5": -100, "60": 0.5})
    assert response.status_code == 200
    (call,) = engine.calls
    lists = {name: tuple(value) for name, value in lists.items()}
    assert call["params"] == SamplingParams(**values, **lists, logit_bias={5: -100.0, 60: 0.5})
    assert call["options"] == RequestOptions()
    assert call["request_id"] == response.json()["id"] + "-0"


@both
async def test_the_engine_learns_who_asks_and_how_urgently(http, engine, endpoint):
    given = {"priority": -3, "deadline_s": 2.5, "cache_salt": "s", "prefix_cache": False}
    await ask(http, endpoint, user="joe", **given)
    http.headers["X-Session-Id"] = "talk"
    await ask(http, endpoint, user="joe")
    http.headers["X-Corelm-Tenant"] = "team"
    await ask(http, endpoint, user="joe")
    assert [call["options"] for call in engine.calls] == [
        RequestOptions(tenant="joe", **given),
        RequestOptions(tenant="joe", session="talk"),
        RequestOptions(tenant="team", session="talk"),
    ]


async def test_who_asks_is_named_as_the_client_names_it(http, engine):
    name = "x" * 513
    assert "user" in assert_error(await http.complete(user=name), 400, param="user")
    for header in ("x-session-id", "x-corelm-tenant"):
        path, body = "/v1/completions", {"model": "fake", "prompt": "a"}
        message = assert_error(await http.post(path, json=body, headers={header: name}), 400, param=header)
        assert header in message
    assert not engine.calls


async def test_the_headers_can_have_other_names(engine):
    settings = OpenAISettings(tenant_header="X-Team", session_header="X-Talk")
    async with Http(engine, settings) as http:
        http.headers.update({"x-team": "a", "x-talk": "b", "x-corelm-tenant": "c", "x-session-id": "d"})
        await http.complete()
    assert engine.calls[0]["options"] == RequestOptions(tenant="a", session="b")


@both
async def test_null_is_the_default(http, engine, endpoint):
    names = "temperature top_p top_k min_p seed stop ignore_eos n stream stream_options user priority max_tokens"
    names += " stop_token_ids skip_special_tokens chat_template_kwargs tools prompt_logprobs truncate_prompt_tokens"
    names += " presence_penalty frequency_penalty repetition_penalty logit_bias bad_words allowed_token_ids min_tokens"
    names += " logits_processors"
    names += " include_stop_str_in_output spaces_between_special_tokens best_of use_beam_search length_penalty echo"
    names += " early_stopping logprobs top_logprobs deadline_s cache_salt prefix_cache"
    assert (await ask(http, endpoint, **dict.fromkeys(names.split()))).status_code == 200
    (call,) = engine.calls
    assert call["params"] == SamplingParams(max_tokens=16 if endpoint == "completions" else None)
    assert call["options"] == RequestOptions()


@pytest.mark.parametrize(
    ("given", "seen"), [("x", ("x",)), (["x"], ("x",)), ([], ()), (None, ()), (["🙂", " ", "é"], ("🙂", " ", "é"))]
)
async def test_stop(http, engine, given, seen):
    await http.complete(stop=given)
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
        *[("max_tokens", value) for value in (-1, HUGE, "5", 2.5)],
        *[("min_tokens", value) for value in (-1, HUGE, "5", 2.5)],
        *[(f"{name}_penalty", value) for name in ("presence", "frequency") for value in (-2.1, 10, "1", True)],
        *[("repetition_penalty", value) for value in (0, -1, 10.5, "1", [])],
        *[
            ("logit_bias", value)
            for value in ({"5": 101}, {"5": "1"}, {"x": 1}, {"1.5": 1}, {" 5": 1}, {"-1": 1}, [], 1)
        ],
        ("logit_bias", {str(HUGE): 1}),
        *[("allowed_token_ids", value) for value in ([], [-1], [HUGE], 5, [1] * 5000)],
        *[("bad_words", value) for value in ("x", [""], ["x"] * 257, ["x" * 2000])],
        *[
            ("logits_processors", value)
            for value in (["a"], "a", 3, {str(i): 1 for i in range(17)}, {"a": "x" * 20_000})
        ],
        *[("prompt_logprobs", value) for value in (-1, 21, 10**5, HUGE, 1.5, "1", True)],
        *[("truncate_prompt_tokens", value) for value in (0, -2, HUGE, "1")],
        *[(name, "yes") for name in ("include_stop_str_in_output", "spaces_between_special_tokens", "use_beam_search")],
        *[("deadline_s", value) for value in (-1, 1e10, "1")],
        *[("cache_salt", value) for value in (1, "x" * 513)],
        ("prefix_cache", 0),
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


async def test_an_item_of_a_wrong_type_is_named(http):
    assert_error(await http.complete(stop=["x", 5]), 400, param="stop[1]")
    assert_error(await http.complete(bad_words=["x", 5]), 400, param="bad_words[1]")
    assert_error(await http.complete(bad_words=[["x"]] * 300_000), 400, param="bad_words[0]")
    assert "as a key" in assert_error(await http.complete(logit_bias={"x": 5}), 400, param="logit_bias")


@both
@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "presence_penalty", "repetition_penalty", "seed"])
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
        {"presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "top_logprobs": 0},
        {"response_format": {"type": "text"}, "tools": [], "tool_choice": "auto", "functions": None, "best_of": 1},
        {"tool_choice": "none", "echo": False, "suffix": None, "repetition_penalty": 1.0, "modalities": ["text"]},
        {"metadata": {"a": "b"}, "store": True, "service_tier": "auto", "parallel_tool_calls": True, "unknown": [1]},
        {"bad_words": [], "documents": [], "grammar": "", "mirostat": 0, "length_penalty": 1.0, "typical_p": 1},
        {"use_beam_search": False, "continue_final_message": False, "include_stop_str_in_output": False},
        {"logits_processors": {}},
    ],
)
async def test_what_asks_for_nothing_is_accepted(http, endpoint, values):
    assert (await ask(http, endpoint, **values)).status_code == 200


@both
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("suffix", "x"),
        ("functions", [{"name": "f"}]),
        ("modalities", ["text", "audio"]),
        ("typical_p", 0.9),
        ("mirostat", 2),
        ("grammar", "root ::= x"),
        ("documents", [{"text": "x"}]),
    ],
)
async def test_what_is_not_supported_is_refused_by_name(http, engine, endpoint, stream, name, value):
    message = assert_error(await ask(http, endpoint, stream=stream, **{name: value}), 400, param=name)
    assert name in message
    assert not engine.calls


@pytest.mark.parametrize(("name", "value"), [("echo", True), ("best_of", 3), ("best_of", 10**6)])
async def test_what_only_completions_have(http, engine, name, value):
    assert_error(await http.chat(**{name: value}), 400, param=name)
    assert not engine.calls


async def test_what_only_chat_has(http, engine):
    assert_error(await http.complete(top_logprobs=1), 400, param="top_logprobs")
    assert not engine.calls


@both
async def test_choices_share_one_request_and_its_seed(http, engine, endpoint):
    await ask(http, endpoint, n=3, seed=2**63 - 2)
    (call,) = engine.calls
    assert (call["params"].n, call["params"].seed) == (3, 2**63 - 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop", ["x"] * 500_000),
        ("stop_token_ids", [1] * 500_000),
        ("n", 10**6),
        ("logit_bias", {str(number): 1 for number in range(1_000_000)}),
        ("allowed_token_ids", [1] * 1_000_000),
        ("bad_words", ["x"] * 100_000),
        ("bad_words", ["x"] * 1_500_000),
        ("logits_processors", {"x": [[]] * 1_500_000}),
        ("prompt_logprobs", 10**5),
        ("top_logprobs", 10**5),
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
    data = json.dumps({"model": "fake", "logprobs": None if name == "prompt" else True, **prompt, name: value}).encode()
    start = time.process_time()
    path = "/v1/completions" if name == "prompt" else "/v1/chat/completions"
    assert_error(await http.post(path, content=data), 400)
    assert time.process_time() - start < 0.2


async def test_odd_values_of_unsupported_fields(http):
    for text in (b'"\\ud800"', b"[" + b" " * 100 + b"]"):
        body = b'{"model": "fake", "prompt": "a", "documents": ' + text + b"}"
        assert_error(await http.post("/v1/completions", content=body), 400)
