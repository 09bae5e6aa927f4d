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


def test_bad_words_stand_alone_and_behind_a_space(intake):
    request = prepare(intake, "a", bad_words=("no",))
    assert set(request.first.bad_words) == {tuple(b"no"), tuple(b" no")}


@pytest.mark.parametrize("prompt", ["0123456789" * 2, list(b"0123456789" * 2)])
def test_truncation_keeps_the_end(intake, prompt):
    assert bytes(prepare(intake, prompt, truncate_prompt_tokens=5).first.token_ids) == b"56789"
    assert bytes(prepare(intake, prompt, truncate_prompt_tokens=50).first.token_ids) == b"0123456789" * 2


def test_truncation_to_what_fits_leaves_room_for_what_is_wanted(intake):
    prompt = "x" * 1000
    assert prepare(intake, prompt, truncate_prompt_tokens=-1, max_tokens=10).first.prompt_len == L - 10
    assert prepare(intake, prompt, truncate_prompt_tokens=-1, max_tokens=None, min_tokens=4).first.prompt_len == L - 4
    assert prepare(intake, prompt, truncate_prompt_tokens=-1, max_tokens=None).first.prompt_len == L - 1


def test_a_truncated_text_is_tokenised_as_if_it_were_whole():
    """Not cut within what is kept, though far less is encoded."""
    seen = []

    class Words(FakeTokenizer):
        max_chars_per_token = 8

        def encode(self, text, *, add_special_tokens=True):
            seen.append(len(text))
            return [len(word) for word in text.split(" ")]

    text = " ".join(["a", "bb", "ccc"] * 3000)
    request = make_intake(Words(), max_model_len=100).prepare(
        text, greedy(truncate_prompt_tokens=20), request_id="r", arrival=0.0
    )
    assert request.first.token_ids == [int(n) for n in "23123123123123123123"]
    assert seen[0] < 1000


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"stop_token_ids": (258,)}, "stop_token_ids"),
        ({"allowed_token_ids": (1, 258)}, "allowed_token_ids"),
        ({"logit_bias": {999: 1.0}}, "logit_bias"),
    ],
)
def test_ids_outside_the_vocabulary_are_refused_by_name(intake, params, param):
    with pytest.raises(InvalidRequestError, match="outside the vocabulary") as caught:
        prepare(intake, "a", **params)
    assert caught.value.param == param


@pytest.mark.parametrize("chat", [False, True])
def test_what_a_tokenizer_returns_stays_its_own(chat):
    """It may give the same list to everybody; outputs are not appended to it."""

    class Remembers(FakeTokenizer):
        known = list(b"the same list")

        def encode(self, text, *, add_special_tokens=True):
            return self.known

        def render_chat(self, chat):
            return self.known

    tokenizer = Remembers()
    prompt = Chat(messages=[{"role": "user", "content": "a"}]) if chat else "a"
    for _ in range(2):
        request = make_intake(tokenizer).prepare(prompt, greedy(), request_id="r", arrival=0.0)
        request.first.token_ids.append(1)
    assert tokenizer.known == list(b"the same list")


def test_min_tokens_must_leave_something_to_sample(intake):
    with pytest.raises(InvalidRequestError, match="leaves nothing to sample") as caught:
        prepare(intake, "a", min_tokens=2, allowed_token_ids=(257,))
    assert caught.value.param == "min_tokens"
