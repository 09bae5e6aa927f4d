"""The tokenizer suite passes a good tokenizer, and says what is wrong with each bad one."""

import pytest

from corelm.api import InvalidRequestError
from corelm.testing import FakeTokenizer, TokenizerConformance
from corelm.testing.conformance.running import run_suite
from corelm.testing.tokenizer import BOS, EOS


class TestFakeTokenizer(TokenizerConformance):
    def make_tokenizer(self):
        return FakeTokenizer()


class AnyId(FakeTokenizer):
    def encode(self, text, *, add_special_tokens=True):
        return [300 if char == "😀" else ord(char) % 256 for char in text]


class BeginsAlways(FakeTokenizer):
    def encode(self, text, *, add_special_tokens=True):
        return [BOS, *super().encode(text)]


class Lower(FakeTokenizer):
    def encode(self, text, *, add_special_tokens=True):
        return super().encode(text.lower())


class Crashing(FakeTokenizer):
    def decode(self, token_ids, *, skip_special_tokens=True):
        return bytes(token_ids).decode(errors="replace")


class ShowsSpecial(FakeTokenizer):
    def decode(self, token_ids, *, skip_special_tokens=True):
        return super().decode(token_ids, skip_special_tokens=False)

    def decoder(self, *, skip_special_tokens=True, spaces_between_special_tokens=True):
        return super().decoder(skip_special_tokens=False)


class OneByOne:
    """Decodes each push by itself."""

    def __init__(self, tokenizer, skip):
        self.tokenizer, self.skip = tokenizer, skip

    def push(self, token_ids):
        return self.tokenizer.decode(token_ids, skip_special_tokens=self.skip)

    def flush(self):
        return ""


class Splitting(FakeTokenizer):
    def decoder(self, *, skip_special_tokens=True, spaces_between_special_tokens=True):
        return OneByOne(self, skip_special_tokens)


class AtTheEnd(OneByOne):
    """Says everything when it is over."""

    def __init__(self, tokenizer, skip):
        super().__init__(tokenizer, skip)
        self.held = []

    def push(self, token_ids):
        self.held += token_ids
        return ""

    def flush(self):
        text, self.held = super().push(self.held), []
        return text


class Late(FakeTokenizer):
    def decoder(self, *, skip_special_tokens=True, spaces_between_special_tokens=True):
        return AtTheEnd(self, skip_special_tokens)


class Shared(FakeTokenizer):
    def __init__(self):
        self.only = super().decoder()

    def decoder(self, *, skip_special_tokens=True, spaces_between_special_tokens=True):
        return self.only if skip_special_tokens else super().decoder(skip_special_tokens=False)


class TextOfBytes(FakeTokenizer):
    def token_bytes(self, token_id):
        return self.decode([token_id], skip_special_tokens=False).encode()


class Swallowing(FakeTokenizer):
    """One token for a run of spaces, whatever its length."""

    def encode(self, text, *, add_special_tokens=True):
        while "  " in text:
            text = text.replace("  ", " ")
        return super().encode(text)


class NotThreadSafe(FakeTokenizer):
    def encode(self, text, *, add_special_tokens=True):
        self.out = []
        for byte in text.encode(errors="replace"):
            self.out.append(byte)
        return self.out


class Surrogates(FakeTokenizer):
    def encode(self, text, *, add_special_tokens=True):
        return list(text.encode())


class Gullible(FakeTokenizer):
    """Lets users say control tokens."""

    def render_chat(self, chat):
        tokens = []
        for message in chat.messages:
            for number, part in enumerate(message["content"].split("<eos>")):
                tokens += [*([EOS] if number else []), *part.encode(errors="replace")]
        return tokens


class BrokenChat(FakeTokenizer):
    def render_chat(self, chat):
        return [258 + len(super().render_chat(chat))]


class Plain(FakeTokenizer):
    def render_chat(self, chat):
        raise InvalidRequestError("no chats here")


def checked(tokenizer, lossless=True):
    class Suite(TokenizerConformance):
        def make_tokenizer(self):
            return tokenizer()

    Suite.lossless = lossless
    return {result.name: result for result in run_suite(Suite())}


@pytest.mark.parametrize(
    ("tokenizer", "check", "message"),
    [
        (AnyId, "encoding gives ids of the vocabulary", "token ids are 0 to vocab_size - 1, which is 257"),
        (BeginsAlways, "nothing is added unless asked for", "add BOS and its like only where they are asked for"),
        (Lower, "decoding gives back the text", "set lossless = False"),
        (Crashing, "every token can be decoded", "ValueError: bytes must be in range(0, 256)"),
        (ShowsSpecial, "special tokens are shown or skipped", "must leave out the special token '<bos>'"),
        (Splitting, "incremental decoding equals the whole", "keep the state between pushes"),
        (Splitting, "part of a character is held back", "hold the bytes of a character back until it is complete"),
        (Late, "complete text is not held back", "though every character is complete"),
        (Shared, "decoders are independent", "decoder() must return a fresh object"),
        (TextOfBytes, "the bytes of tokens join to the text", "override token_bytes"),
        (Swallowing, "no token stands for more characters than the limit", "prompts that fit would be refused"),
        (NotThreadSafe, "several threads may use it", "keep no state of a call in the tokenizer object"),
        (Surrogates, "half a surrogate pair is refused or replaced", "raises UnicodeEncodeError; raise InvalidRequest"),
        (Gullible, "what a user says never becomes a special token", "so that nobody can fake a turn"),
        (BrokenChat, "a chat becomes ids of the vocabulary", "render_chat with '' holds"),
    ],
)
def test_what_is_wrong_is_named(tokenizer, check, message):
    result = checked(tokenizer)[check]
    assert not result.passed
    assert message in result.message


def test_what_does_not_apply_is_skipped_with_the_reason():
    results = checked(Plain)
    assert results["a chat becomes ids of the vocabulary"].message == "it renders no chats: no chats here"
    assert all(result.passed for result in results.values())
    results = checked(Lower, lossless=False)
    assert results["decoding gives back the text"].skipped
    assert all(result.passed for result in results.values())


def test_make_tokenizer_must_be_written():
    results = run_suite(TokenizerConformance())
    assert not any(result.passed for result in results)
    assert "write make_tokenizer()" in results[0].message
