"""What bytes each token stands for, where a tokenizer's decoder treats every token by itself."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import Tokenizer

from corelm_hf.byte_alphabet import BYTE_OF_CHAR

Spelling = Callable[[str], bytes]
"""From a token's text in the vocabulary to the bytes it decodes to."""


def component_state(component: Any) -> Mapping[str, Any]:
    """The JSON description of a normalizer, pre-tokenizer or decoder; empty for None."""
    state: Mapping[str, Any] = json.loads(component.__getstate__()) if component is not None else {}
    return state


def flatten(state: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """A component as a list of its steps, whether it is a ``Sequence`` (of steps under `key`) or one step."""
    if not state:
        return []
    if state["type"] != "Sequence":
        return [state]
    return [step for part in state[key] for step in flatten(part, key)]


class TokenBytes(dict[int, bytes]):
    """Token id to bytes, filled as tokens are first seen. Ids that are skipped or no tokens give no bytes."""

    def __init__(self, backend: Tokenizer, vocab_size: int, spelling: Spelling, skipped: frozenset[int]) -> None:
        super().__init__()
        self._backend = backend
        self._ids = range(vocab_size)
        self._spelling = spelling
        self._skipped = skipped

    def __missing__(self, token: int) -> bytes:
        if token not in self._ids:
            return b""
        text = None if token in self._skipped else self._backend.id_to_token(token)
        self[token] = data = b"" if text is None else self._spelling(text)
        return data


def byte_level_spelling(text: str) -> bytes:
    """A token of a byte-level vocabulary: spelled in GPT-2's alphabet, or plain text if any character is not of it."""
    try:
        return bytes([BYTE_OF_CHAR[char] for char in text])
    except KeyError:
        return text.encode()


def sentencepiece_spelling(steps: list[Mapping[str, Any]]) -> tuple[Spelling, int] | None:
    """The spelling that the decoder `steps` of a SentencePiece vocabulary amount to, and how many spaces they
    strip from the start of the text. None if they do not follow that pattern.
    """
    replacements: list[tuple[str, str]] = []
    kinds = [step["type"] for step in steps]
    strips = 0
    for step in steps:
        if step["type"] == "Replace" and "String" in step["pattern"]:
            replacements.append((step["pattern"]["String"], step["content"]))
        elif step["type"] == "Strip" and step["content"] == " " and step["stop"] == 0 and "Fuse" in kinds:
            strips += step["start"]
        elif step["type"] not in ("ByteFallback", "Fuse"):
            return None
    byte_fallback = "ByteFallback" in kinds

    def spelling(text: str) -> bytes:
        if byte_fallback and len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            try:
                return bytes.fromhex(text[3:5])
            except ValueError:
                pass
        for old, new in replacements:
            text = text.replace(old, new)
        return text.encode()

    return (spelling, strips) if steps and "Fuse" in kinds else None
