"""A grammar compiler that knows nothing but lists of texts, and masks as lists of tokens."""

import json
from collections.abc import Iterable, Sequence

from corelm.contracts.grammar import Grammar, GrammarCompiler, GrammarMatcher
from corelm.contracts.tokenizer import Tokenizer
from corelm.errors import InvalidRequestError, RequestFailedError
from corelm.sampling import StructuredOutput
from corelm.testing.tokenizer import FakeTokenizer


def mask_of(token_ids: Iterable[int], vocab_size: int) -> bytes:
    """The mask that allows these tokens: see `corelm.api.GrammarCompiler`."""
    bits = sum(1 << token for token in set(token_ids))
    return bits.to_bytes(4 * -(-vocab_size // 32), "little")


def allowed_tokens(mask: bytes) -> list[int]:
    """The tokens that a mask allows."""
    return [8 * place + bit for place, byte in enumerate(mask) if byte for bit in range(8) if byte >> bit & 1]


class FakeGrammarCompiler(GrammarCompiler):
    """Takes a ``choice`` for what it is, and any other source for the one text that may come.

    A JSON Schema has to be JSON.
    """

    def __init__(self, tokenizer: Tokenizer | None = None, vocab_size: int = 258) -> None:
        tokenizer = tokenizer or FakeTokenizer()
        self.vocab_size = vocab_size
        self.end_tokens = tokenizer.eos_token_ids
        special = set(tokenizer.special_tokens.values())
        self.texts = {
            token: tokenizer.token_bytes(token)
            for token in range(min(vocab_size, tokenizer.vocab_size))
            if token not in special
        }

    def compile(self, wanted: StructuredOutput) -> Grammar:
        return _Texts(self, frozenset(text.encode() for text in _texts(wanted)))

    def masks(self, matchers: Sequence[GrammarMatcher]) -> list[bytes]:
        return [mask_of(matcher.next_tokens(), self.vocab_size) for matcher in matchers if isinstance(matcher, _Walk)]


def _texts(wanted: StructuredOutput) -> list[str]:
    if wanted.kind in ("choice", "json_schema"):
        try:
            texts = json.loads(wanted.source)
        except ValueError as error:
            raise InvalidRequestError(f"the source is not JSON: {error}") from error
        if wanted.kind == "choice":
            if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
                raise InvalidRequestError("a choice must be a list of strings")
            return texts
    return [wanted.source]


class _Texts(Grammar):
    def __init__(self, compiler: FakeGrammarCompiler, texts: frozenset[bytes]) -> None:
        self._compiler = compiler
        self._texts = texts

    def matcher(self) -> "_Walk":
        return _Walk(self._compiler, self._texts)


class _Walk(GrammarMatcher):
    def __init__(self, compiler: FakeGrammarCompiler, texts: frozenset[bytes]) -> None:
        self._compiler = compiler
        self._rests = texts
        """What may still come."""

    def accept(self, token_ids: Sequence[int]) -> None:
        for token in token_ids:
            text = self._compiler.texts.get(token, b"")
            self._rests = frozenset(rest[len(text) :] for rest in self._rests if text and rest.startswith(text))
            if not self._rests:
                raise RequestFailedError(f"token {token} does not fit the grammar")

    @property
    def ended(self) -> bool:
        return self._rests == {b""}

    def forced(self) -> list[int]:
        rests, forced = self._rests, []
        while b"" not in rests and len(tokens := self._tokens(rests)) == 1:
            forced += tokens
            rests = frozenset(rest[len(self._compiler.texts[tokens[0]]) :] for rest in rests)
        return forced

    def next_tokens(self) -> list[int]:
        """What may be sampled."""
        return self._tokens(self._rests) + [token for token in self._compiler.end_tokens if b"" in self._rests]

    def _tokens(self, rests: frozenset[bytes]) -> list[int]:
        return [token for token, text in self._compiler.texts.items() if any(rest.startswith(text) for rest in rests)]
