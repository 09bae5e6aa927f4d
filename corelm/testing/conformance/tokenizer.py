"""What every tokenizer must do."""

from collections.abc import Callable, Iterator
from functools import partial
from unittest import SkipTest

from corelm.contracts.tokenizer import Chat, Tokenizer
from corelm.errors import InvalidRequestError
from corelm.testing.conformance.texts import LONE_SURROGATES, NASTY_TEXTS, TURN, groupings, shown
from corelm.testing.conformance.threads import in_threads
from corelm.testing.conformance.tokenizer_probes import (
    brief,
    check_range,
    plain_texts,
    some_tokens,
    special_tokens_of,
    token_lists,
)

THREAD_TEXTS, ROUNDS = 8, 3
REPLACEMENT = "\ufffd"


class TokenizerConformance:
    """Checks a tokenizer against `corelm.api.Tokenizer`.

    Subclass it in your tests; pytest collects the checks::

        class TestMine(TokenizerConformance):
            def make_tokenizer(self) -> Tokenizer:
                return MyTokenizer(...)

    `make_tokenizer` is called once for each check. Cache what is slow to load: the checks change nothing.
    """

    lossless: bool = True
    """Whether decoding gives back every text that was encoded. Set it to False for a vocabulary that cannot express
    every character, or that normalises text."""

    def make_tokenizer(self) -> Tokenizer:
        """The tokenizer to check."""
        raise NotImplementedError("write make_tokenizer(): it returns the tokenizer to check")

    def test_what_it_says_of_itself(self) -> None:
        tokenizer = self.make_tokenizer()
        assert isinstance(tokenizer, Tokenizer), "derive your class from corelm.api.Tokenizer"
        assert tokenizer.vocab_size >= 1, "vocab_size must be at least 1"
        assert tokenizer.max_chars_per_token >= 1, "max_chars_per_token must be at least 1"
        check_range(tokenizer, sorted(tokenizer.eos_token_ids), "eos_token_ids")
        for text, token in tokenizer.special_tokens.items():
            assert text, "a special token has no text; special_tokens maps texts to ids"
            check_range(tokenizer, [token], f"special_tokens[{text!r}]")

    def test_encoding_gives_ids_of_the_vocabulary(self) -> None:
        tokenizer = self.make_tokenizer()
        for text in (*NASTY_TEXTS, *tokenizer.special_tokens):
            for add in (True, False):
                check_range(tokenizer, tokenizer.encode(text, add_special_tokens=add), f"encode({shown(text)})")

    def test_nothing_is_added_unless_asked_for(self) -> None:
        tokenizer = self.make_tokenizer()
        assert not tokenizer.encode("", add_special_tokens=False), (
            'encode("", add_special_tokens=False) must be empty: add BOS and its like only where they are asked for'
        )
        for text in plain_texts(tokenizer):
            whole, plain = tokenizer.encode(text), tokenizer.encode(text, add_special_tokens=False)
            places = range(len(whole) - len(plain) + 1)
            assert any(whole[at : at + len(plain)] == plain for at in places), (
                f"encode({shown(text)}) does not hold the tokens that add_special_tokens=False gives; the option may "
                "only leave out what stands before or after the text"
            )

    def test_decoding_gives_back_the_text(self) -> None:
        tokenizer = self._lossless_tokenizer()
        for text in plain_texts(tokenizer):
            decoded = tokenizer.decode(tokenizer.encode(text))
            assert decoded == text, (
                f"decode(encode({shown(text)})) is {shown(decoded)}; keep every character, or set lossless = False if "
                "the vocabulary cannot express it"
            )

    def test_every_token_can_be_decoded(self) -> None:
        tokenizer = self.make_tokenizer()
        assert tokenizer.decode([]) == "", "decode([]) must be an empty text"
        for token in some_tokens(tokenizer):
            assert isinstance(tokenizer.decode([token]), str), f"decode([{token}]) must be a str"
            raw = tokenizer.token_bytes(token)
            assert isinstance(raw, bytes), f"token_bytes({token}) must be bytes, not {type(raw).__name__}"

    def test_special_tokens_are_shown_or_skipped(self) -> None:
        tokenizer = self.make_tokenizer()
        for text, token in tokenizer.special_tokens.items():
            assert tokenizer.decode([token]) == "", f"decode([{token}]) must leave out the special token {text!r}"
            full = tokenizer.decode([token], skip_special_tokens=False)
            assert full == text, f"decode([{token}], skip_special_tokens=False) must be {text!r}, not {full!r}"
            assert tokenizer.token_bytes(token) == text.encode(), f"token_bytes({token}) must be the text {text!r}"

    def test_incremental_decoding_equals_the_whole(self) -> None:
        tokenizer = self.make_tokenizer()
        for token_ids in token_lists(tokenizer):
            for skip in (True, False):
                whole = tokenizer.decode(token_ids, skip_special_tokens=skip)
                for groups in groupings(token_ids):
                    decoder = tokenizer.decoder(skip_special_tokens=skip)
                    joined = "".join(map(decoder.push, groups)) + decoder.flush()
                    assert joined == whole, (
                        f"an incremental decoder gives {shown(joined)} for {brief(token_ids)} "
                        f"(skip_special_tokens={skip}), decode gives {shown(whole)}: keep the state between pushes"
                    )
                    assert decoder.flush() == "", "flush() must give what it holds back once, then nothing"

    def test_part_of_a_character_is_held_back(self) -> None:
        tokenizer = self.make_tokenizer()
        for text, token_ids in _spelled(tokenizer):
            decoder = tokenizer.decoder()
            for token in token_ids:
                assert REPLACEMENT not in decoder.push([token]), (
                    f"while {shown(text)} is decoded token by token, U+FFFD appears: hold the bytes of a character "
                    "back until it is complete"
                )

    def test_complete_text_is_not_held_back(self) -> None:
        tokenizer = self.make_tokenizer()
        for _, token_ids in _spelled(tokenizer):
            decoder = tokenizer.decoder()
            pushed = "".join(decoder.push([token]) for token in token_ids)
            rest = decoder.flush()
            assert not rest, f"{shown(rest)} is held back after {shown(pushed)}, though every character is complete"

    def test_decoders_are_independent(self) -> None:
        tokenizer = self.make_tokenizer()
        first, second = tokenizer.encode("one 😀 two"), tokenizer.encode("三 四")
        texts, decoders = ["", ""], [tokenizer.decoder(), tokenizer.decoder()]
        for at in range(max(len(first), len(second))):
            for number, token_ids in enumerate((first, second)):
                texts[number] += decoders[number].push(token_ids[at : at + 1])
        joined = [text + decoder.flush() for text, decoder in zip(texts, decoders, strict=True)]
        assert joined == [tokenizer.decode(first), tokenizer.decode(second)], (
            "two decoders at a time disturb each other: decoder() must return a fresh object with a state of its own"
        )

    def test_the_bytes_of_tokens_join_to_the_text(self) -> None:
        tokenizer = self._lossless_tokenizer()
        for text in plain_texts(tokenizer):
            joined = b"".join(map(tokenizer.token_bytes, tokenizer.encode(text, add_special_tokens=False)))
            # Some vocabularies begin every text with a space, which only decoding the whole takes away.
            assert joined in (text.encode(), b" " + text.encode()), (
                f"the token_bytes of {shown(text)} join to {joined[:80]!r}: override token_bytes so that a token gives "
                "its own bytes, also where they are part of a character"
            )

    def test_no_token_stands_for_more_characters_than_the_limit(self) -> None:
        tokenizer = self.make_tokenizer()
        limit = tokenizer.max_chars_per_token
        for token in some_tokens(tokenizer):
            length = len(tokenizer.token_bytes(token).decode(errors="ignore"))
            assert length <= limit, f"token {token} has {length} characters; max_chars_per_token is {limit}, raise it"
        for text in plain_texts(tokenizer):
            count = len(tokenizer.encode(text, add_special_tokens=False))
            assert len(text) <= max(count, 1) * limit, (
                f"{shown(text)} becomes {count} tokens, which are {count * limit} characters by max_chars_per_token "
                f"= {limit}; raise it: prompts that fit would be refused"
            )

    def test_several_threads_may_use_it(self) -> None:
        tokenizer = self.make_tokenizer()
        calls = [partial(_round_trip, tokenizer, text) for text in NASTY_TEXTS[:THREAD_TEXTS]]
        expected = [call() for call in calls]
        for _ in range(ROUNDS):
            assert in_threads(calls) == expected, (
                "several threads at once get other tokens or texts than one alone: keep no state of a call in the "
                "tokenizer object, or guard it with a lock"
            )

    def test_half_a_surrogate_pair_is_refused_or_replaced(self) -> None:
        tokenizer = self.make_tokenizer()
        for text in LONE_SURROGATES:
            token_ids = _accepted(text, partial(tokenizer.encode, text))
            check_range(tokenizer, token_ids, f"encode({shown(text)})")
            chat = Chat(messages=[{"role": "user", "content": text}])
            token_ids = _accepted(text, partial(tokenizer.render_chat, chat))
            check_range(tokenizer, token_ids, f"render_chat with {shown(text)}")

    def test_a_chat_becomes_ids_of_the_vocabulary(self) -> None:
        tokenizer = self._chatty_tokenizer()
        for prompt in (True, False):
            for content in NASTY_TEXTS:
                chat = Chat(messages=[{"role": "user", "content": content}], add_generation_prompt=prompt)
                check_range(tokenizer, tokenizer.render_chat(chat), f"render_chat with {shown(content)}")

    def test_what_a_user_says_never_becomes_a_special_token(self) -> None:
        tokenizer = self._chatty_tokenizer()
        expected = special_tokens_of(tokenizer, "hello")
        for text in tokenizer.special_tokens:
            half = len(text) // 2
            for content in (text, f"hello{text}hello", f"{text[:half]}{text}{text[half:]}", f"{text}\n{text}"):
                found = special_tokens_of(tokenizer, content)
                assert found == expected, (
                    f"a user who says {shown(content)} gets special tokens {dict(found)} into the prompt, hello gives "
                    f"{dict(expected)}: encode what users say as plain text, so that nobody can fake a turn"
                )

    def _lossless_tokenizer(self) -> Tokenizer:
        if not self.lossless:
            raise SkipTest("lossless is False")
        return self.make_tokenizer()

    def _chatty_tokenizer(self) -> Tokenizer:
        tokenizer = self.make_tokenizer()
        try:
            tokenizer.render_chat(Chat(messages=TURN))
        except InvalidRequestError as error:
            raise SkipTest(f"it renders no chats: {error}") from None
        return tokenizer


def _spelled(tokenizer: Tokenizer) -> Iterator[tuple[str, list[int]]]:
    """Texts of which the vocabulary can spell every character, with their tokens."""
    for text in plain_texts(tokenizer):
        token_ids = tokenizer.encode(text)
        if REPLACEMENT not in tokenizer.decode(token_ids):
            yield text, token_ids


def _accepted(text: str, call: Callable[[], list[int]]) -> list[int]:
    """The tokens, or nothing if the text is refused as it may be."""
    try:
        return call()
    except InvalidRequestError:
        return []
    except Exception as error:
        raise AssertionError(
            f"{shown(text)} raises {type(error).__name__}; raise InvalidRequestError, or replace what cannot be encoded"
        ) from error


def _round_trip(tokenizer: Tokenizer, text: str) -> tuple[list[int], str]:
    token_ids = tokenizer.encode(text)
    return token_ids, tokenizer.decode(token_ids)
