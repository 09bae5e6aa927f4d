"""The synchronous library, on the fake executor."""

import pytest
from helpers import expected_text, greedy

from corelm import LLM
from corelm.api import BatchError, EngineDeadError, InvalidRequestError, SamplingParams, SchedulingPolicy


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


def test_embeddings(llm):
    one, two = llm.embed(["one", list(b"two")])
    assert llm.embed("one")[0].data == one.data != two.data
    assert one.prompt_tokens == 3
    with pytest.raises(BatchError, match="1 of 2 prompts failed; prompt 1: the prompt is empty"):
        llm.embed(["a", ""])


def test_chat(llm):
    messages = [{"role": "user", "content": "hi"}]
    assert llm.chat(messages, greedy())[0].text == llm.chat([messages, messages], greedy())[1].text


def test_what_fails_is_reported_and_the_others_end(llm):
    with pytest.raises(BatchError, match="1 of 3 prompts failed; prompt 1: the prompt is empty") as caught:
        llm.generate(["a", "", "b"], greedy())
    first, refused, last = caught.value.results
    assert (first[0].text, last[0].text) == (expected_text("a"), expected_text("b"))
    assert isinstance(refused, InvalidRequestError)
    with pytest.raises(InvalidRequestError, match="2 prompts but 1 params"):
        llm.generate(["a", "b"], [greedy()])
    with pytest.raises(InvalidRequestError, match="the prompt is empty"):
        llm.generate("")


def test_choices_come_one_after_the_other(llm):
    outputs = llm.generate(["a", "b"], SamplingParams(n=2, seed=5, max_tokens=4, ignore_eos=True))
    assert [output.text for output in outputs] == [expected_text(p, 4, seed) for p in "ab" for seed in (5, 6)]


def test_a_step_that_never_ends_is_given_up():
    llm = LLM("fake", executor="fake", tokenizer="fake", fake={"hang_at_step": 1}, iteration_timeout_s=0.2)
    with pytest.raises(EngineDeadError, match="iteration timeout"):
        llm.generate("a", greedy())


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


def test_a_prompt_that_the_policy_refuses_is_one_of_the_errors(monkeypatch):
    class Picky(SchedulingPolicy):
        def key(self, request):
            if request.prompt_tokens > 3:
                raise InvalidRequestError("too long for me")
            return request.arrival

    with LLM("fake", executor="fake", tokenizer="fake") as llm:
        monkeypatch.setattr(llm._engine._scheduler.policy, "_policy", Picky())
        with pytest.raises(BatchError, match="prompt 1: too long for me") as caught:
            llm.generate(["abc", "abcdef", "ab"], greedy())
    assert [isinstance(result, InvalidRequestError) for result in caught.value.results] == [False, True, False]
