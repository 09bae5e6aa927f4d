"""What llguidance and the limits of JSON have to know of a tokenizer."""

from collections.abc import Callable
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt
from llguidance import LLTokenizer, TokenizerWrapper

from corelm.api import InvalidRequestError, Tokenizer

Bits = npt.NDArray[np.uint8]
DIGITS = b"0123456789"


class Vocabulary:
    """Every token of an executor's vocabulary with its bytes. Making one takes a fraction of a second."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        known = min(vocab_size, tokenizer.vocab_size)
        self.size = vocab_size
        self.texts = [tokenizer.token_bytes(token) for token in range(known)] + [b""] * (vocab_size - known)
        self.special = frozenset(token for token in tokenizer.special_tokens.values() if token < vocab_size)
        self.end_tokens = sorted(token for token in tokenizer.eos_token_ids if token < vocab_size)
        if not self.end_tokens:
            raise InvalidRequestError("the model has no token that ends an output")
        self._tokenizer = tokenizer
        self.library = self._make(self.encode)
        ordinary = [b"" if token in self.special else text for token, text in enumerate(self.texts)]
        self._digits = np.array([len(text) - len(text.lstrip(DIGITS)) for text in ordinary])
        self.quoting = self._bits(np.array([text.startswith(b'"') for text in ordinary]))
        """The tokens that begin with a quotation mark."""
        self.most_digits = int(self._digits.max())
        """That a token begins with."""
        self.with_few_digits = cache(lambda most: self._bits(self._digits <= most))
        """The tokens that begin with at most so many digits."""

    def encode(self, text: str) -> list[int]:
        """The model's tokens for a text, or others where these mean more or less: control tokens, a space before it."""
        tokens = self._tokenizer.encode(text, add_special_tokens=False)
        known = max(tokens, default=0) < self.size and self.special.isdisjoint(tokens)
        if known and b"".join(map(self.texts.__getitem__, tokens)) == text.encode():
            return tokens
        return self._longest.greedy_tokenize(text)

    @cached_property
    def _longest(self) -> LLTokenizer:
        """For texts that it cuts into the longest tokens there are."""
        return self._make(lambda text: [])

    def _make(self, encode: Callable[[str], list[int]]) -> LLTokenizer:
        return LLTokenizer(TokenizerWrapper(_Wrapped(self, encode)), n_vocab=self.size, eos_token=self.end_tokens)

    def _bits(self, tokens: npt.NDArray[np.bool_]) -> Bits:
        padded = np.zeros(32 * -(-self.size // 32), np.bool_)
        padded[: self.size] = tokens
        return np.packbits(padded, bitorder="little")


class _Wrapped:
    """The form in which llguidance takes tokenizers."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary, encode: Callable[[str], list[int]]) -> None:
        self.eos_token_id = vocabulary.end_tokens[0]
        self.tokens = vocabulary.texts
        self.special_token_ids = sorted(vocabulary.special)
        self._encode = encode

    def __call__(self, text: str | bytes) -> list[int]:
        return self._encode(text if isinstance(text, str) else text.decode())
