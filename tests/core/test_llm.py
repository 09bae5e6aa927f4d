"""The synchronous library, on the fake executor."""

import pytest
from helpers import expected_text, greedy

from corelm import LLM
from corelm.api import EngineDeadError, InvalidRequestError


@pytest.fixture
def llm():
    with LLM("fake", executor="fake", tokenizer="fake") as llm:
        yield llm


def test_outputs_come_in_the_order_of_the_prompts(llm):
    prompts = ["one", list(b"two"), "three"]
    outputs = llm.generate(prompts, [greedy(max_tokens=n) for n in (9, 3, 6)])
    assert [o.text for o in outputs] == [expected_text("one", 9), expected_text("two", 3), expected_text("three", 6)]
    assert [o.completion_tokens for o in outputs] == [9, 3, 6]


def test_one_prompt(llm):
    assert llm.generate("one", greedy())[0].text == llm.generate([111, 110, 101], greedy())[0].text
    assert llm.generate([]) == []


def test_chat(llm):
    messages = [{"role": "user", "content": "hi"}]
    assert llm.chat(messages, greedy())[0].text == llm.chat([messages, messages], greedy())[1].text


def test_a_refused_prompt_is_named_and_nothing_runs(llm):
    with pytest.raises(InvalidRequestError, match="prompt 1: the prompt is empty"):
        llm.generate(["a", ""], greedy())
    with pytest.raises(InvalidRequestError, match="2 prompts but 1 params"):
        llm.generate(["a", "b"], [greedy()])
    assert llm.generate("a", greedy())[0].text == expected_text("a")


def test_it_cannot_be_used_after_a_failed_step_or_close():
    llm = LLM("fake", executor="fake", tokenizer="fake", fake={"fail_at_step": 2})
    with pytest.raises(ZeroDivisionError):
        llm.generate("a", greedy())
    with pytest.raises(EngineDeadError, match="create a new one"):
        llm.generate("a", greedy())
    closed = LLM("fake", executor="fake", tokenizer="fake")
    closed.close()
    closed.close()
    with pytest.raises(EngineDeadError, match="closed"):
        closed.generate("a", greedy())
