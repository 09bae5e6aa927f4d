"""How much text one token can stand for."""

import sys
from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer, models

from corelm_hf.pieces import component_state, flatten

UNBOUNDED = sys.maxsize

_COMPOSED_MAX = 4
"""Unicode's normal forms C and KC join at most this many characters into one."""


def max_chars_per_token(backend: Tokenizer) -> int:
    """An upper bound on the characters of input that one token of `backend` covers.

    Conservative: `UNBOUNDED` as soon as anything in the tokenizer may swallow any amount of ordinary text, such as
    a normalizer that strips, a pre-tokenizer that removes spaces, or one token for a run of unknown characters. Not
    counted are characters for which the vocabulary has nothing at all (in some, a few control characters).
    """
    added = backend.get_added_tokens_decoder().values()
    if _joins_unknown(backend) or any(token.lstrip or token.rstrip for token in added):
        return UNBOUNDED
    splits = flatten(component_state(backend.pre_tokenizer), "pretokenizers")
    if not all(map(_keeps_text, splits)):
        return UNBOUNDED
    bound = max((len(text) for text in backend.get_vocab()), default=1)
    for step in flatten(component_state(backend.normalizer), "normalizers"):
        if step["type"] in ("NFC", "NFKC"):
            bound *= _COMPOSED_MAX
        elif not _keeps_length(step):
            return UNBOUNDED
    return bound


def _joins_unknown(backend: Tokenizer) -> bool:
    """Whether the model maps unknown text of any length to one token."""
    model = backend.model
    if not isinstance(model, models.BPE):
        return True
    knows_bytes = model.byte_fallback and all(model.token_to_id(f"<0x{byte:02X}>") is not None for byte in range(256))
    return model.fuse_unk and not knows_bytes


def _keeps_text(step: Mapping[str, Any]) -> bool:
    if step["type"] in ("Split", "Punctuation"):
        return bool(step["behavior"] != "Removed")
    return step["type"] in ("ByteLevel", "Digits", "Metaspace")


def _keeps_length(step: Mapping[str, Any]) -> bool:
    """Whether a normalizer's output is never shorter than its input."""
    if step["type"] == "Replace" and "String" in step["pattern"]:
        return len(step["pattern"]["String"]) <= len(step["content"])
    return step["type"] in ("Prepend", "NFD", "NFKD", "ByteLevel")
