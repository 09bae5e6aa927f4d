"""Builds a tokenizer from the metadata of a GGUF file."""

from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken
from tokenizers.processors import TemplateProcessing

from corelm.api import ModelLoadError
from corelm_hf.gguf_fields import CONTROL, USER_DEFINED, Fields
from corelm_hf.gguf_vocabulary import KINDS, Vocabulary
from corelm_hf.parts import TokenizerParts

_NAMED_TOKENS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}
_END_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
_TEMPLATE = "tokenizer.chat_template"


def read_gguf(path: Path) -> TokenizerParts:
    """The tokenizer that the GGUF file at `path` describes.

    Raises `ModelLoadError` if the file is unusable, or its kind of tokenizer is not supported.
    """
    fields = Fields(path)
    kind = fields.text("tokenizer.ggml.model", "")
    if kind not in KINDS:
        raise ModelLoadError(f"{path}: unsupported GGUF tokenizer {kind!r}; supported: {', '.join(KINDS)}")
    vocabulary = KINDS[kind](fields)
    named = {name: token for name, key in _NAMED_TOKENS.items() if (token := fields.token_id(key)) is not None}
    ends = {token: key for key in _END_KEYS if (token := fields.token_id(key)) is not None}
    texts = vocabulary.texts
    control = [texts[token] for token in _control_tokens(fields, {*ends, named.get("bos_token")})]
    plain = [text for text, its_type in zip(texts, fields.types, strict=True) if its_type == USER_DEFINED]
    backend = vocabulary.backend
    backend.add_tokens([AddedToken(text, normalized=False, special=False) for text in plain])
    backend.add_tokens([AddedToken(text, normalized=False, special=True) for text in control])
    _add_post_processor(vocabulary, fields, named)
    return TokenizerParts(
        backend=backend,
        vocab_size=len(texts),
        token_names={name: texts[token] for name, token in named.items()},
        eos_token_ids=ends,
        chat_template=fields.text(_TEMPLATE, "") or None,
        chat_template_source=f"{_TEMPLATE} in {path}",
    )


def _control_tokens(fields: Fields, also: set[int | None]) -> Iterator[int]:
    """Tokens typed as control, and those that begin or end texts whatever their type."""
    return (token for token, its_type in enumerate(fields.types) if its_type == CONTROL or token in also)


def _add_post_processor(vocabulary: Vocabulary, fields: Fields, named: dict[str, int]) -> None:
    """Put BOS before and EOS after a text, as the file's flags say."""
    add_bos = fields.flag("tokenizer.ggml.add_bos_token", vocabulary.add_bos)
    add_eos = fields.flag("tokenizer.ggml.add_eos_token", False)
    before = [named["bos_token"]] if add_bos and "bos_token" in named else []
    after = [named["eos_token"]] if add_eos and "eos_token" in named else []
    if before or after:
        around = [(vocabulary.texts[token], token) for token in {*before, *after}]
        single = [
            *(vocabulary.texts[token] for token in before),
            "$A",
            *(vocabulary.texts[token] for token in after),
        ]
        vocabulary.backend.post_processor = TemplateProcessing(single=single, special_tokens=around)
