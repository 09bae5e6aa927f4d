"""How well each engine predicts a text: prose that ships with Python, the language reference behind its `help()`."""

import math
from pathlib import Path

from corelm_hf.settings import HfSettings
from corelm_hf.tokenizer import HfTokenizer

from corelm.api import ResolvedModel

TOPICS = ("comparisons", "execmodel", "exceptions")
PIECES = 4
PIECE_TOKENS = 512
POSITIONS = PIECES * (PIECE_TOKENS - 1)


def pieces(model: Path) -> list[list[int]]:
    """The beginning of the text in pieces of `PIECE_TOKENS` tokens."""
    from pydoc_data.topics import topics

    tokenizer = HfTokenizer.load(ResolvedModel(name=model.stem, path=model, format="gguf"), HfSettings())
    ids = tokenizer.encode("".join(topics[name] for name in TOPICS), add_special_tokens=False)
    return [ids[at : at + PIECE_TOKENS] for at in range(0, PIECES * PIECE_TOKENS, PIECE_TOKENS)]


def perplexity(logprobs: list[list[float]]) -> float:
    """Of all tokens that an engine scored."""
    values = [value for piece in logprobs for value in piece]
    if len(values) != POSITIONS:
        raise ValueError(f"{len(values)} log-probabilities instead of {POSITIONS}")
    return math.exp(-sum(values) / len(values))
