"""The tokenizer "hf"."""

from collections.abc import Sequence
from pathlib import Path

from corelm.api import (
    Chat,
    ConfigurationError,
    IncrementalDecoder,
    InvalidRequestError,
    ResolvedModel,
    Tokenizer,
)
from corelm_hf.bounds import max_chars_per_token
from corelm_hf.chat import ChatRenderer
from corelm_hf.decoding import Decoding
from corelm_hf.directory_parts import read_directory
from corelm_hf.end_tokens import end_tokens
from corelm_hf.gguf_parts import read_gguf
from corelm_hf.parts import TokenizerParts
from corelm_hf.plain import check_encodable
from corelm_hf.settings import HfSettings
from corelm_hf.template import ChatTemplate


class HfTokenizer(Tokenizer):
    """Hugging Face's `tokenizers` behind corelm's contract.

    Thread-safe: the backends are never changed after construction. Text with a lone surrogate is refused with
    `InvalidRequestError`.
    """

    def __init__(self, parts: TokenizerParts, template: ChatTemplate | None) -> None:
        added = parts.backend.get_added_tokens_decoder().items()
        special = {token.content: token_id for token_id, token in added if token.special}
        self.special_tokens = special
        self.vocab_size = parts.vocab_size
        self.eos_token_ids = end_tokens(parts, special, template.source if template else "")
        self.max_chars_per_token = max_chars_per_token(parts.backend)
        self._backend = parts.backend
        self._decoding = Decoding(parts.backend, parts.vocab_size, frozenset(special.values()))
        self._chat = None if template is None else ChatRenderer(parts, special, template)

    @classmethod
    def load(cls, model: ResolvedModel, settings: HfSettings) -> "HfTokenizer":
        """The tokenizer of `model`. Raises `ModelLoadError` or, for a wrong setting, `ConfigurationError`."""
        parts = read_gguf(model.path) if model.format == "gguf" else read_directory(model.path)
        if settings.chat_template is not None:
            return cls(parts, ChatTemplate(_read_template(settings.chat_template), str(settings.chat_template)))
        own = None if parts.chat_template is None else ChatTemplate(parts.chat_template, parts.chat_template_source)
        return cls(parts, own)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        check_encodable(text, "prompt")
        # The batch call, unlike the single one, lets other threads run meanwhile.
        encoding = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0]
        ids: list[int] = encoding.ids
        return ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return self._decoding.decode(token_ids, skip_special_tokens)

    def decoder(
        self, *, skip_special_tokens: bool = True, spaces_between_special_tokens: bool = True
    ) -> IncrementalDecoder:
        return self._decoding.decoder(skip_special_tokens)

    def token_bytes(self, token_id: int) -> bytes:
        return self._decoding.token_bytes(token_id)

    def render_chat(self, chat: Chat) -> list[int]:
        if self._chat is None:
            raise InvalidRequestError(
                "this model has no chat template; give one with the setting CORELM_HF_CHAT_TEMPLATE (the path of a"
                " Jinja file), or use plain completions",
                param="messages",
            )
        return self._chat.token_ids(chat)


def _read_template(path: Path) -> str:
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"cannot read the chat template {path} (CORELM_HF_CHAT_TEMPLATE): {error}") from error
