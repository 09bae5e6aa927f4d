"""Formats of other plugins, registered as plugins do and used by a running server."""

import importlib.util
import json
from pathlib import Path

import pytest
from corelm_openai.formats import ToolFunction
from corelm_openai.settings import OpenAISettings
from distributions import install
from hypothesis import given
from hypothesis import strategies as st
from openai_http import Http
from openai_plugins import Serving, make_frontend
from tool_texts import cut, read_with

from corelm.api import PluginError

EXAMPLE = Path(__file__).parents[3] / "examples/tag_calls/corelm_tag_calls.py"
PLUGIN = """
from corelm.api import hookimpl
from corelm_openai.formats import ReasoningFormat, Thoughts


class Brackets(ReasoningFormat):
    def parser(self, prompt_end):
        return self

    def push(self, text, *, last=False):
        return Thoughts(text, "") if text.startswith("(") else Thoughts("", text)


@hookimpl
def corelm_openai_register_reasoning_formats(register):
    register("brackets", lambda context: Brackets())
"""
BODY = {
    "model": "fake",
    "messages": [{"role": "user", "content": "x"}],
    "tools": [{"type": "function", "function": {"name": "go"}}],
}


@pytest.fixture(scope="module")
def tags():
    spec = importlib.util.spec_from_file_location("tag_calls_example", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TagCalls()


async def chat(http, **body):
    reply = (await http.post("/v1/chat/completions", json={**BODY, **body})).json()
    return reply["choices"][0]["message"]


async def test_the_example_is_used_where_the_setting_says_so(site, engine):
    install(site, "tag_calls", EXAMPLE.read_text())
    engine.say = lambda prompt, seed: ["I go.", "<function=", "go>{}</function>"]
    async with Serving(make_frontend("tag_calls", tool_format="tags"), engine) as http, http:
        message = await chat(http)
        assert message["tool_calls"][0]["function"] == {"name": "go", "arguments": "{}"}
        assert message["content"] == "I go."
        await chat(http, tool_choice="required")
        source = engine.calls[-1]["params"].structured_output.source
        assert source.startswith('start: calls\ncalls: call+\ncall: "<function=go>" %json {')
    async with Serving(make_frontend("tag_calls"), engine) as http, http:
        assert "tool_calls" not in await chat(http)


TEXTS = [
    ('Hm. <function=go>{"a": "<"}</function>!', ["Hm. ", ("go", '{"a": "<"}'), "!"]),
    ("<function=go>{}</function><function=go> {} </function>", [("go", "{}"), ("go", "{}")]),
    ("a <function=stop>{}</function> <function=go>[]</function> <fun", None),
    ("<function=go>{}", None),
    ("</function> <function=go>{</function> <", None),
]


@pytest.mark.parametrize(("text", "found"), TEXTS)
@given(places=st.lists(st.integers(0, 60), max_size=6))
def test_what_the_example_reads(tags, text, found, places):
    assert read_with(tags.parser({"go"}), cut(text, places)) == (found or [text])


def test_what_the_example_forces(tags):
    llguidance = pytest.importorskip("llguidance")
    function = ToolFunction(name="go", description="", parameters={"type": "object", "properties": {}})
    source = "start: calls\n" + tags.rules([function], {}, parallel=True)
    assert not llguidance.LLMatcher.validate_grammar(llguidance.LLMatcher.grammar_from_lark(source))
    assert json.dumps(function.parameters) in source


async def test_a_reasoning_format(site, engine):
    install(site, "extra", PLUGIN)
    engine.say = lambda prompt, seed: ["(hm)"]
    async with Serving(make_frontend("extra", reasoning_format="brackets"), engine) as http, http:
        assert (await chat(http))["reasoning_content"] == "(hm)"


@pytest.mark.parametrize("setting", ["tool_format", "reasoning_format"])
async def test_a_format_that_there_is_not_ends_the_start(site, engine, setting, stop):
    install(site, "extra", PLUGIN)
    with pytest.raises(PluginError, match=f"nothing named 'shoot' is registered with .*{setting}s.*available: "):
        await make_frontend("extra", **{setting: "shoot"}).serve(engine, stop)


async def test_the_role_of_replies_is_a_setting(engine):
    async with Http(engine, OpenAISettings(response_role="model")) as http:
        assert (await http.chat()).json()["choices"][0]["message"]["role"] == "model"
        assert '"role":"model"' in (await http.chat(stream=True)).text
        going_on = await http.chat(
            messages=[{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}],
            continue_final_message=True,
        )
        assert going_on.json()["choices"][0]["message"]["role"] == "assistant"
        prompt = engine.calls[-1]["prompt"]
        assert (prompt.continue_final_message, prompt.add_generation_prompt) == (True, False)
        refused = await http.chat(continue_final_message=True, add_generation_prompt=True)
        assert refused.json()["error"]["param"] == "continue_final_message"
