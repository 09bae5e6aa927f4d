"""How byte-level vocabularies split text before merging, by the name a GGUF gives (``tokenizer.ggml.pre``).

The patterns are those of the models' own tokenizer.json files.
"""

from typing import NamedTuple

from tokenizers import Regex, normalizers, pre_tokenizers

from corelm.api import ModelLoadError


class PreTokenizer(NamedTuple):
    """One way to split."""

    pattern: str | None = None
    """None is the pattern of GPT-2, which the library has built in."""
    single_digits: bool = False
    """Every digit is a piece of its own, before the pattern is applied to what lies between."""
    nfc: bool = False
    """Text is first brought into Unicode's composed form."""
    ignore_merges: bool = False
    """A piece that is a token is taken whole, whatever the merges say."""
    add_bos: bool = False
    """Whether BOS is added when the file does not say."""

    def splitter(self) -> pre_tokenizers.PreTokenizer:
        if self.pattern is None:
            words = pre_tokenizers.ByteLevel(add_prefix_space=False)
            if self.single_digits:
                return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words])
            return words
        split = pre_tokenizers.Split(Regex(self.pattern), behavior="isolated")
        return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    def normalizer(self) -> normalizers.Normalizer | None:
        return normalizers.NFC() if self.nfc else None


_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = r"[^\r\n\p{L}\p{N}]?" + _UPPER
_CASED_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"

_GPT2 = PreTokenizer()
_LLAMA3 = PreTokenizer(_WORDS + r"|\p{N}{1,3}" + _TAIL, ignore_merges=True, add_bos=True)
_QWEN2 = PreTokenizer(_WORDS + r"|\p{N}" + _TAIL, nfc=True)
_TEKKEN = PreTokenizer(f"{_CASED}*{_LOWER}+|{_CASED}+{_LOWER}*" + r"|\p{N}" + _CASED_TAIL, ignore_merges=True)
_GPT4O = PreTokenizer(
    f"{_CASED}*{_LOWER}+{_CONTRACTIONS}?|{_CASED}+{_LOWER}*{_CONTRACTIONS}?" + r"|\p{N}{1,3}" + _CASED_TAIL,
    ignore_merges=True,
)

_BY_NAME = {
    "default": _GPT2,
    "gpt-2": _GPT2,
    "smollm": PreTokenizer(single_digits=True),
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama-bpe": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "tekken": _TEKKEN,
    "gpt-4o": _GPT4O,
    "llama4": _GPT4O,
}


def pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer called `name`. Raises `ModelLoadError` if it is unknown: guessing would give wrong tokens."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise ModelLoadError(
            f"unsupported GGUF pre-tokenizer {name!r}; supported: {', '.join(_BY_NAME)}. "
            "Use the model's directory with a tokenizer.json instead"
        ) from None
