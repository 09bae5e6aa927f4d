"""What a model's files say about text, in one form for every format."""

from collections.abc import Mapping
from dataclasses import dataclass

from tokenizers import Tokenizer


@dataclass(frozen=True, kw_only=True)
class TokenizerParts:
    """Read from a model directory or a GGUF file."""

    backend: Tokenizer
    """Its special added tokens are the control tokens."""
    vocab_size: int
    token_names: Mapping[str, str]
    """Variables for chat templates: ``bos_token``, ``eos_token`` and their like, with the token's text."""
    eos_token_ids: Mapping[int, str]
    """End tokens, each with where it was found."""
    chat_template: str | None
    chat_template_source: str
    """Where the template was found, for messages."""
