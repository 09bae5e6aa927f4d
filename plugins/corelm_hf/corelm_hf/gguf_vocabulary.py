"""The kinds of vocabulary that GGUF files hold, and the tokenizers they make."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from corelm.api import ModelLoadError
from corelm_hf.byte_alphabet import BYTE_OF_CHAR, spell
from corelm_hf.gguf_fields import NORMAL, USER_DEFINED, Fields
from corelm_hf.pre_tokenizers import pre_tokenizer

SPACE = "\u2581"
"""Stands for a space in SentencePiece vocabularies."""

_MERGES = "tokenizer.ggml.merges"

Merges = list[tuple[str, str]]


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer without its added tokens yet."""

    texts: list[str]
    """Tokens in the order of their ids, as `backend` spells them."""
    backend: Tokenizer
    add_bos: bool
    """Whether BOS is added when the file does not say."""


def _byte_level(fields: Fields) -> Vocabulary:
    """The kind called "gpt2": BPE over bytes spelled in GPT-2's alphabet."""
    pre = pre_tokenizer(fields.text("tokenizer.ggml.pre", "default"))
    texts = [
        spell(text.encode()) if its_type == NORMAL and not BYTE_OF_CHAR.keys() >= set(text) else text
        for text, its_type in zip(fields.tokens, fields.types, strict=True)
    ]
    backend = Tokenizer(_bpe(fields.path, texts, _listed_merges(fields), ignore_merges=pre.ignore_merges))
    if pre.nfc:
        backend.normalizer = pre.normalizer()
    backend.pre_tokenizer = pre.splitter()
    backend.decoder = decoders.ByteLevel()
    return Vocabulary(texts, backend, pre.add_bos)


def _sentencepiece(fields: Fields) -> Vocabulary:
    """The kind called "llama": SentencePiece BPE, with bytes for what the vocabulary lacks."""
    texts = [
        text.replace(SPACE, " ") if its_type == USER_DEFINED else text
        for text, its_type in zip(fields.tokens, fields.types, strict=True)
    ]
    merges = _listed_merges(fields) if _MERGES in fields else _implied_merges(fields)
    unknown = fields.token_id("tokenizer.ggml.unknown_token_id")
    unk_token = None if unknown is None else texts[unknown]
    backend = Tokenizer(_bpe(fields.path, texts, merges, unk_token=unk_token, fuse_unk=True, byte_fallback=True))
    add_space = fields.flag("tokenizer.ggml.add_space_prefix", True)
    backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "first" if add_space else "never", split=False)
    to_text = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*to_text, decoders.Strip(" ", 1, 0)] if add_space else to_text)
    return Vocabulary(texts, backend, add_bos=True)


KINDS = {"gpt2": _byte_level, "llama": _sentencepiece}
"""By the name in ``tokenizer.ggml.model``."""


def _bpe(path: Path, texts: list[str], merges: Merges, **options: Any) -> models.BPE:
    try:
        return models.BPE({text: token for token, text in enumerate(texts)}, merges, **options)
    except Exception as error:
        raise ModelLoadError(f"{path}: its merges do not fit its vocabulary: {error}") from error


def _listed_merges(fields: Fields) -> Merges:
    merges = []
    for line in fields.strings(_MERGES):
        left, space, right = line.partition(" ")
        if not space:
            raise ModelLoadError(f"{fields.path}: {_MERGES} holds {line!r}, which is no pair")
        merges.append((left, right))
    return merges


def _implied_merges(fields: Fields) -> Merges:
    """The merges that make SentencePiece's choices: the adjacent pair that joins to the best-scored piece goes first.

    Only normal pieces take part, so text never merges into a control token.
    """
    scores = fields.scores()
    pieces = {
        text: token
        for token, (text, its_type) in enumerate(zip(fields.tokens, fields.types, strict=True))
        if its_type == NORMAL
    }
    merges: Merges = []
    for text in sorted(pieces, key=lambda piece: -scores[pieces[piece]]):
        pairs = ((text[:cut], text[cut:]) for cut in range(1, len(text)))
        known = [pair for pair in pairs if pair[0] in pieces and pair[1] in pieces]
        merges += sorted(known, key=lambda pair: (pieces[pair[0]], pieces[pair[1]]))
    return merges
