"""A tokenizer whose author promised API 0.1 only: rightly so, since `Tokenizer.decoder` has another keyword in 0.2."""

from collections.abc import Sequence

from corelm.api import Chat, IncrementalDecoder, Register, Tokenizer, TokenizerContext, hookimpl

corelm_api = ((0, 1), (0, 2))


class Bytes(Tokenizer):
    """A token for each byte."""

    vocab_size = 256
    eos_token_ids = frozenset()
    special_tokens = {}
    max_chars_per_token = 1

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return bytes(token_ids).decode(errors="replace")

    def decoder(self, *, skip_special_tokens: bool = True) -> IncrementalDecoder:
        raise NotImplementedError

    def render_chat(self, chat: Chat) -> list[int]:
        return self.encode("\n".join(message["content"] for message in chat.messages))


@hookimpl
def corelm_register_tokenizers(register: Register[TokenizerContext, Tokenizer]) -> None:
    register("old_tokenizer", lambda context: Bytes())
