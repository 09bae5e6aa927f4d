"""The tokenizer contract: text to tokens and back."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from corelm.contracts.model import ResolvedModel


class TokenizerContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a tokenizer's factory is given."""

    model: ResolvedModel
    settings: Any
    """An instance of the settings model that the plugin registered, or None."""


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation to be rendered with the model's chat template."""

    messages: Sequence[Mapping[str, Any]]
    """In the shape of OpenAI's API: each has a ``role`` and ``content`` (a string, or None beside ``tool_calls``).

    Assistant turns may have ``tool_calls``, whose ``arguments`` are objects, and ``reasoning_content``; tool turns have
    ``tool_call_id``; any may have a ``name``."""
    tools: Sequence[Mapping[str, Any]] = ()
    """Tools the model may call, in the shape of OpenAI's API: ``{"type": "function", "function": {...}}``."""
    add_generation_prompt: bool = True
    """End with the opening of an assistant turn."""
    continue_final_message: bool = False
    """End within the last message, for the model to go on with it. Not together with `add_generation_prompt`."""
    template_kwargs: Mapping[str, Any] = {}
    """Extra variables for the template."""


class IncrementalDecoder(Protocol):
    """Turns the tokens of one request into text, as they come."""

    def push(self, token_ids: Sequence[int]) -> str:
        """Text that these tokens complete. Never part of a character: its bytes are held back."""

    def flush(self) -> str:
        """What is still held back, with U+FFFD for bytes that never became a character."""


class Tokenizer(ABC):
    """Thread-safe: the engine calls it from several threads at once.

    Joining the results of an incremental decoder gives exactly `decode` of all its tokens.
    """

    vocab_size: int
    """Token ids are 0 to vocab_size - 1."""
    eos_token_ids: frozenset[int]
    """Every token that ends a generation, from all of the model's configuration files."""
    special_tokens: Mapping[str, int]
    """Control tokens by their text. User text never encodes to one of them in a chat."""
    max_chars_per_token: int
    """No token stands for more characters; so a text can be too long without being encoded."""

    @abstractmethod
    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`, with the model's own prefix (such as BOS) unless told otherwise."""

    @abstractmethod
    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of `token_ids`."""

    @abstractmethod
    def decoder(
        self, *, skip_special_tokens: bool = True, spaces_between_special_tokens: bool = True
    ) -> IncrementalDecoder:
        """A fresh incremental decoder for one output. Tokenizers that put no spaces between special tokens ignore that
        option."""

    def token_bytes(self, token_id: int) -> bytes:
        """What a token stands for; part of a character, perhaps. Special tokens stand for their text."""
        return self.decode([token_id], skip_special_tokens=False).encode()

    @abstractmethod
    def render_chat(self, chat: Chat) -> list[int]:
        """Token ids of a conversation. Raises `InvalidRequestError` if the template refuses it."""
