import pytest
from helpers import greedy, make_intake

from corelm.api import Chat, InvalidRequestError, RequestOptions
from corelm.testing import FakeTokenizer

L = 32


@pytest.fixture
def intake():
    return make_intake(max_model_len=L, kv_tokens=1000)


def prepare(intake, prompt, **options):
    return intake.prepare(prompt, greedy(**options), request_id="r", arrival=0.0)


@pytest.mark.parametrize("prompt", ["", []])
def test_an_empty_prompt_is_refused(intake, prompt):
    with pytest.raises(InvalidRequestError, match="empty"):
        prepare(intake, prompt)


@pytest.mark.parametrize("token", [-1, 258, 2**63])
def test_a_token_outside_the_vocabulary_is_named(intake, token):
    with pytest.raises(InvalidRequestError, match=str(token)):
        prepare(intake, [1, token])


@pytest.mark.parametrize("token", [True, 1.0, "a", None])
def test_token_ids_are_integers(intake, token):
    with pytest.raises(InvalidRequestError, match="integers"):
        prepare(intake, [1, token])


def test_special_token_ids_are_allowed(intake):
    assert prepare(intake, [256, 257]).first.token_ids == [256, 257]


def test_length_limits_say_true_numbers(intake):
    assert prepare(intake, "x" * (L - 1), max_tokens=None).first.max_tokens == 1
    assert prepare(intake, "x" * (L - 1), max_tokens=1).first.max_tokens == 1
    for length in (L, L + 1):
        with pytest.raises(InvalidRequestError, match=f"{L} tokens; the prompt has {length}") as caught:
            prepare(intake, "x" * length, max_tokens=None)
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "prompt")
    with pytest.raises(
        InvalidRequestError, match=f"{L} tokens; the prompt has 10 and max_tokens asks for {L}"
    ) as caught:
        prepare(intake, "x" * 10, max_tokens=L)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "max_tokens")


def test_a_prompt_beyond_the_kv_cache_is_refused_with_its_size():
    small = make_intake(max_model_len=1000, kv_tokens=16)
    with pytest.raises(InvalidRequestError, match="KV cache holds 16 tokens; the prompt has 20"):
        prepare(small, "x" * 20)
    assert prepare(small, "x" * 10, max_tokens=None).first.max_tokens == 6


@pytest.mark.parametrize("prompt", ["x" * 10**6, Chat(messages=[{"role": "user", "content": [{"text": "x" * 10**6}]}])])
def test_a_huge_prompt_is_refused_without_encoding_it(prompt):
    class Slow(FakeTokenizer):
        def encode(self, text, *, add_special_tokens=True):
            raise AssertionError("encoded")

        render_chat = encode

    intake = make_intake(Slow(), max_model_len=L, kv_tokens=1000)
    with pytest.raises(InvalidRequestError) as caught:
        prepare(intake, prompt)
    assert caught.value.code == "context_length_exceeded"


def test_requests_get_a_seed_and_ids_that_are_never_used_again(intake):
    first, second = prepare(intake, "a"), prepare(intake, "a")
    assert first.first.sampling.seed is not None
    assert first.number != second.number


@pytest.mark.parametrize("priority", [True, 1.5, 2**40, "1"])
def test_priority_is_a_32_bit_integer(intake, priority):
    with pytest.raises(InvalidRequestError, match="priority"):
        intake.prepare("a", greedy(), request_id="r", arrival=0.0, options=RequestOptions(priority=priority))
