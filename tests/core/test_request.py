"""From tokens to text: end tokens, stop strings, split characters."""

import pytest
from helpers import greedy, make_intake
from hypothesis import given
from hypothesis import strategies as st

EOS = 257


class Ended:
    """Where a request takes its finished sequences."""

    def retire(self, sequence):
        pass


def run(tokens, step=1, **options):
    """Outputs for `tokens` as they come `step` at a time."""
    request = make_intake().prepare("p", greedy(**{"max_tokens": 1000, **options}), request_id="r", arrival=0.0)
    outputs = []
    for start in range(0, len(tokens), step):
        outputs += request.advance(Ended(), request.first, list(tokens[start : start + step]), None)
        if outputs[-1].finish_reason:
            break
    return outputs


def joined(outputs):
    return "".join(output.text for output in outputs)


def test_end_token_is_counted_but_not_shown():
    outputs = run([*b"ab", EOS, *b"cd"])
    assert joined(outputs) == "ab"
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason, outputs[-1].completion_tokens) == ("stop", EOS, 3)


def test_ignore_eos_goes_on():
    outputs = run([*b"ab", EOS, *b"cd"], ignore_eos=True)
    assert joined(outputs) == "abcd"
    assert outputs[-1].finish_reason is None


def test_max_tokens_ends_with_length():
    outputs = run(b"abcdef", max_tokens=4)
    assert (joined(outputs), outputs[-1].finish_reason, outputs[-1].completion_tokens) == ("abcd", "length", 4)


def test_a_stop_string_that_is_a_special_token_works():
    outputs = run([*b"ab", EOS, *b"cd"], ignore_eos=True, stop=("<eos>",))
    assert (joined(outputs), outputs[-1].stop_reason) == ("ab", "<eos>")


def test_stop_token_ids():
    outputs = run(b"abcd", stop_token_ids=(ord("c"),))
    assert (joined(outputs), outputs[-1].finish_reason, outputs[-1].stop_reason) == ("ab", "stop", ord("c"))


@pytest.mark.parametrize("step", [1, 2, 5])
@pytest.mark.parametrize("length", range(1, 13))
def test_stop_strings_cut_at_every_offset(step, length):
    text = "the quick brown fox jumps"
    for offset in range(len(text) - length):
        stop = text[offset : offset + length]
        outputs = run(text.encode(), step, stop=(stop,))
        assert joined(outputs) == text[: text.index(stop)]
        assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == ("stop", stop)


def test_a_stop_string_in_the_prompt_is_no_match():
    assert run(b"xyz", stop=("p",))[-1].finish_reason is None


def test_a_possible_stop_string_is_shown_when_the_text_ends():
    assert joined(run(b"abcd", max_tokens=4, stop=("cde",))) == "abcd"
    assert joined(run([*b"abcd", EOS], stop=("cde",))) == "abcd"


@given(st.text(max_size=20), st.integers(1, 4))
def test_no_half_character_is_ever_shown(text, step):
    outputs = run(text.encode(), step, max_tokens=len(text.encode()) or 1)
    assert joined(outputs) == text
    assert all("�" not in output.text for output in outputs) or "�" in text


def test_max_tokens_in_mid_character_gives_a_replacement_character():
    outputs = run("a\U0001f600".encode()[:3], max_tokens=3)
    assert joined(outputs) == "a�"
    assert [output.text for output in outputs] == ["a", "", "�"]
