from hypothesis import given
from hypothesis import strategies as st

from corelm.engine.stopping import StopMatcher


def run(pieces, stop):
    matcher = StopMatcher(stop)
    shown = "".join(matcher.push(piece) for piece in pieces)
    return shown + (matcher.flush() if matcher.matched is None else ""), matcher.matched


def reference(text, stop):
    hits = [(text.find(s), len(s), s) for s in stop if s in text]
    if not hits:
        return text, None
    position, _, matched = min(hits)
    return text[:position], matched


def test_only_a_real_partial_match_is_held_back():
    matcher = StopMatcher(("<|end|>",))
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
    matcher = StopMatcher(("x",))
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
