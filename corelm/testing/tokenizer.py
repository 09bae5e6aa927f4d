"""A byte-level tokenizer."""

import codecs
from collections.abc import Sequence

from corelm.contracts.tokenizer import Chat, IncrementalDecoder, Tokenizer

BOS, EOS = 256, 257


class FakeTokenizer(Tokenizer):
    """One token per UTF-8 byte, then ``<bos>`` (256) and ``<eos>`` (257)."""

    vocab_size = 258
    eos_token_ids = frozenset({EOS})
    special_tokens = {"<bos>": BOS, "<eos>": EOS}  # noqa: RUF012
    max_chars_per_token = 5

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode(errors="replace"))

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return b"".join(_bytes(token, skip_special_tokens) for token in token_ids).decode(errors="replace")

    def decoder(
        self, *, skip_special_tokens: bool = True, spaces_between_special_tokens: bool = True
    ) -> IncrementalDecoder:
        return _Decoder(skip_special_tokens)

    def token_bytes(self, token_id: int) -> bytes:
        return _bytes(token_id, skip_special_tokens=False)

    def render_chat(self, chat: Chat) -> list[int]:
        tokens = [BOS]
        for message in chat.messages:
            tokens += f"{message['role']}: {message['content']}\n".encode(errors="replace")
        return tokens + list(b"assistant: " if chat.add_generation_prompt else b"")


class _Decoder:
    def __init__(self, skip_special_tokens: bool) -> None:
        self._skip = skip_special_tokens
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_ids: Sequence[int]) -> str:
        return self._utf8.decode(b"".join(_bytes(token, self._skip) for token in token_ids))

    def flush(self) -> str:
        return self._utf8.decode(b"", final=True)


def _bytes(token: int, skip_special_tokens: bool) -> bytes:
    if token < 256:
        return bytes((token,))
    return b"" if skip_special_tokens else (b"<bos>", b"<eos>")[token - 256]
