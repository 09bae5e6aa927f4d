"""What models think before they answer."""

import pytest
from corelm_openai.reasoning.formats import REASONING_FORMATS
from corelm_openai.settings import OpenAISettings
from hypothesis import given
from hypothesis import strategies as st
from openai_http import Http, events_of
from tool_texts import cut

TOOL = {"type": "function", "function": {"name": "f"}}
THOUGHT = ["<thi", "nk>\nHm", "m. ", "\n</think", ">\n\nYes", "."]


@pytest.fixture
def settings():
    return OpenAISettings(port=0, reasoning_format="think")


async def message(http, **body):
    response = await http.chat(**body)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]


async def deltas(http, **body):
    *events, _ = events_of((await http.chat(stream=True, **body)).text)
    return [event["choices"][0]["delta"] for event in events]


def think(pieces, prompt_end=""):
    parser = REASONING_FORMATS["think"]().parser(prompt_end)
    found = [parser.push(text, last=number == len(pieces) - 1) for number, text in enumerate(pieces)]
    return "".join(item.reasoning for item in found), "".join(item.answer for item in found)


@pytest.mark.parametrize(
    ("text", "prompt_end", "reasoning", "answer"),
    [
        ("<think>\nHm.\n</think>\n\nYes.", "", "Hm.", "Yes."),
        (" \n<think></think>Yes.", "", "", "Yes."),
        ("<think>Hm.", "", "Hm.", ""),
        ("<think>Hm.</thi", "", "Hm.</thi", ""),
        ("Yes. <think>Hm.</think>", "", "", "Yes. <think>Hm.</think>"),
        ("  Yes. ", "", "", "  Yes. "),
        ("<thin", "", "", "<thin"),
        ("Hm.</think> Yes. </think>", "x<think>\n", "Hm.", "Yes. </think>"),
        ("Hm.", "<think>", "Hm.", ""),
        ("Yes.", "<think>\n\n</think>\n\n", "", "Yes."),
    ],
)
def test_thoughts_are_told_from_answers(text, prompt_end, reasoning, answer):
    assert think([text], prompt_end) == (reasoning, answer)
    assert think(list(text), prompt_end) == (reasoning, answer)


fragments = st.sampled_from(["<think>", "</think>", "<", "think>", " ", "\n", "a", "</"])


@given(
    text=st.lists(fragments, max_size=12).map("".join),
    places=st.lists(st.integers(0, 60), max_size=6),
    end=st.sampled_from(["", "<think>"]),
)
def test_pieces_make_no_difference(text, places, end):
    whole = think([text], end)
    assert think(cut(text, places), end) == whole
    if not end and not text.lstrip().startswith("<think>"):
        assert whole == ("", text)


async def test_thoughts_have_a_field_of_their_own(http, engine):
    engine.say = lambda prompt, seed: THOUGHT
    assert await message(http) == {
        "role": "assistant",
        "content": "Yes.",
        "refusal": None,
        "reasoning_content": "Hmm.",
    }
    assert await deltas(http) == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "Hm"},
        {"reasoning_content": "m."},
        {"content": "Yes"},
        {"content": "."},
        {},
    ]


async def test_they_can_be_left_out(http, engine):
    engine.say = lambda prompt, seed: THOUGHT
    assert (await message(http, include_reasoning=False)).keys() == {"role", "content", "refusal"}
    assert all("reasoning_content" not in delta for delta in await deltas(http, include_reasoning=False))


async def test_the_template_may_have_begun_them(http, engine):
    engine.say = lambda prompt, seed: ["Hm.</think>", "Yes."]
    assert (await message(http))["content"] == "Hm.</think>Yes."
    engine.prompt_end = "<|im_start|>assistant\n<think>\n"
    found = await message(http, n=2)
    assert (found["reasoning_content"], found["content"]) == ("Hm.", "Yes.")
    assert engine.calls[1]["prompt"] == engine.calls[1]["prompt_ids"]


async def test_no_calls_are_found_in_thoughts(http, engine):
    call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    engine.say = lambda prompt, seed: ["<think>", call, "</think>", call]
    found = await message(http, tools=[TOOL])
    assert found["reasoning_content"] == call
    assert (len(found["tool_calls"]), found["content"]) == (1, None)


async def test_an_output_of_a_form_has_no_thoughts(http, engine):
    engine.prompt_end = "<think>"
    engine.say = lambda prompt, seed: ['{"a": 1}']
    assert (await message(http, response_format={"type": "json_object"}))["content"] == '{"a": 1}'
    assert (await message(http, truncate_prompt_tokens=3))["content"] == '{"a": 1}'


@pytest.mark.parametrize(
    ("setting", "special", "found"),
    [("auto", {}, False), ("auto", {"<think>": 5}, True), ("none", {"<think>": 5}, False), ("think", {}, True)],
)
async def test_the_format_is_that_of_the_setting_or_the_vocabulary(engine, setting, special, found):
    engine.special = special
    engine.say = lambda prompt, seed: THOUGHT
    async with Http(engine, OpenAISettings(reasoning_format=setting)) as http:
        assert ("reasoning_content" in await message(http)) == found


@pytest.mark.parametrize(
    ("body", "variables"),
    [
        ({}, {}),
        ({"reasoning_effort": None}, {}),
        ({"reasoning_effort": "high"}, {"reasoning_effort": "high"}),
        ({"reasoning_effort": "none"}, {"reasoning_effort": "none", "enable_thinking": False}),
        (
            {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
            {"reasoning_effort": "none", "enable_thinking": True},
        ),
    ],
)
async def test_effort_is_the_templates_business(engine, body, variables):
    async with Http(engine, OpenAISettings()) as http:
        await http.chat(**body)
        assert engine.calls[0]["prompt"].template_kwargs == variables
        assert (await http.chat(reasoning_effort="x" * 100)).status_code == 400
