"""One token per byte."""

import codecs
from collections.abc import Mapping, Sequence

from corelm.api import (
    Chat,
    IncrementalDecoder,
    InvalidRequestError,
    Register,
    Tokenizer,
    TokenizerContext,
    hookimpl,
)

corelm_api = ((0, 2), (1, 0))

BOS, EOS = 256, 257
VOCAB_SIZE = 258
_SPECIAL = {BOS: b"<bos>", EOS: b"<eos>"}


class ByteTokenizer(Tokenizer):
    """Tokens 0 to 255 are the bytes of UTF-8, then come ``<bos>``, which begins every prompt, and ``<eos>``.

    It keeps nothing that changes, which makes it thread-safe. Text never encodes to a special token.
    """

    vocab_size = VOCAB_SIZE
    eos_token_ids = frozenset({EOS})
    special_tokens: Mapping[str, int] = {text.decode(): token for token, text in _SPECIAL.items()}
    max_chars_per_token = max(map(len, _SPECIAL.values()))

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Raises `InvalidRequestError` for half of a surrogate pair, which UTF-8 cannot express."""
        try:
            tokens = list(text.encode())
        except UnicodeEncodeError as error:
            raise InvalidRequestError(f"the text has no UTF-8: {error.reason}", param="prompt") from error
        return [BOS, *tokens] if add_special_tokens else tokens

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        decoder = self.decoder(skip_special_tokens=skip_special_tokens)
        return decoder.push(token_ids) + decoder.flush()

    def decoder(
        self, *, skip_special_tokens: bool = True, spaces_between_special_tokens: bool = True
    ) -> IncrementalDecoder:
        return ByteDecoder({} if skip_special_tokens else _SPECIAL)

    def token_bytes(self, token_id: int) -> bytes:
        return _bytes(token_id, _SPECIAL)

    def render_chat(self, chat: Chat) -> list[int]:
        """A line for each message, as there is no template."""
        lines = [f"{message['role']}: {message['content']}\n" for message in chat.messages]
        opening = ["assistant: "] if chat.add_generation_prompt else []
        return self.encode("".join(lines + opening))


class ByteDecoder:
    """Holds back the bytes of a character until it is complete."""

    def __init__(self, special: Mapping[int, bytes]) -> None:
        """`special` holds the special tokens to be shown."""
        self._special = special
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_ids: Sequence[int]) -> str:
        return self._utf8.decode(b"".join(_bytes(token, self._special) for token in token_ids))

    def flush(self) -> str:
        return self._utf8.decode(b"", final=True)


def _bytes(token: int, special: Mapping[int, bytes]) -> bytes:
    """What a token stands for; nothing if it is hidden, or a token that only the model knows."""
    return bytes((token,)) if 0 <= token < BOS else special.get(token, b"")


@hookimpl
def corelm_register_tokenizers(register: Register[TokenizerContext, Tokenizer]) -> None:
    register("bytes", lambda context: ByteTokenizer(), summary="one token per byte of UTF-8")
