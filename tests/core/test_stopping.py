import time

from hypothesis import given
from hypothesis import strategies as st

from corelm.engine.stopping import StopMatcher, stop_strings


def run(pieces, stop):
    matcher = StopMatcher(stop_strings(stop))
    shown = "".join(matcher.push(piece) for piece in pieces)
    return shown + (matcher.flush() if matcher.matched is None else ""), matcher.matched


def reference(text, stop):
    hits = [(text.find(s), len(s), s) for s in stop if s in text]
    if not hits:
        return text, None
    position, _, matched = min(hits)
    return text[:position], matched


def test_only_a_real_partial_match_is_held_back():
    matcher = StopMatcher(stop_strings(["<|end|>"]))
    assert matcher.push("a < b") == "a < b"
    assert matcher.push(" <|en") == " "
    assert matcher.push("ough") == "<|enough"


def test_match_over_three_pieces():
    assert run(["ab", "cd", "ef"], ("bcde",)) == ("a", "bcde")


def test_earliest_position_wins_and_then_the_shorter():
    assert run(["xx abc"], ("abc", "ab")) == ("xx ", "ab")
    assert run(["one two"], ("two", "one")) == ("", "one")


def test_stop_on_characters_not_bytes():
    assert run(["caf", "é au", " lait"], ("é",)) == ("caf", "é")
    assert run(["a\U0001f468\u200d\U0001f469b"], ("\U0001f468\u200d\U0001f469",)) == ("a", "\U0001f468\u200d\U0001f469")


def test_nothing_after_a_match():
    matcher = StopMatcher(stop_strings("x"))
    assert matcher.push("ax b") == "a"
    assert matcher.push("more") == ""


@given(
    st.lists(st.text("ab", max_size=4), max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=5), max_size=4),
)
def test_pieces_do_not_matter_for_what_is_shown(pieces, stop):
    shown, matched = run(pieces, tuple(stop))
    whole, _ = reference("".join(pieces), stop)
    if matched is None:
        assert shown == "".join(pieces)
        assert not any(s in shown for s in stop)
    else:
        assert shown + matched == "".join(pieces)[: len(shown) + len(matched)]
        assert not any(s in shown for s in stop)
        assert len(shown) >= len(whole)


@given(st.lists(st.text("ab", max_size=4), max_size=12), st.text("ab", min_size=1, max_size=5))
def test_one_stop_string_is_found_at_its_first_place(pieces, stop):
    assert run(pieces, (stop,)) == reference("".join(pieces), [stop])


def test_looking_costs_the_same_however_much_is_held_back():
    """What a client can do at worst: a text that is nearly all of each stop string, again and again."""
    stop = stop_strings(["a" * 1023 + "b", *(chr(ord("c") + i) + "a" * 1023 for i in range(15))])
    matchers = [StopMatcher(stop) for _ in range(4)]
    before = time.process_time()
    for matcher in matchers:
        for _ in range(2000):
            matcher.push("a")
    assert time.process_time() - before < 1.0
    assert matchers[0].flush() == "a" * 1023
