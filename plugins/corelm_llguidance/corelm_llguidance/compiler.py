"""The grammar compiler ``llguidance``."""

import os
import re
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLParserLimits
from llguidance.numpy import fill_next_token_bitmask, fill_next_token_bitmask_par

from corelm.api import (
    Grammar,
    GrammarCompiler,
    GrammarMatcher,
    InvalidRequestError,
    RequestFailedError,
    StructuredOutput,
    Tokenizer,
)
from corelm_llguidance.json_runs import JsonRuns
from corelm_llguidance.sources import grammar_of
from corelm_llguidance.vocabulary import Vocabulary

LONGEST_REASON = 300
CPUS_TO_SHARE = 4
"""With fewer, handing rows to threads takes longer than the rows do."""
ROWS_TO_SHARE = 4
_EXCERPT = re.compile(r"\n *(\d+ \||\^).*|<non-verbose/>")


class LLGuidance(GrammarCompiler):
    """Compiles for one tokenizer, of which it makes what llguidance needs when the first grammar comes."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, *, threads: int | None = None) -> None:
        """`threads` compute masks; without it, half of the CPUs."""
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._lock = threading.Lock()
        self._vocabulary: Vocabulary | None = None
        self._limits = LLParserLimits(verbose_errors=False)
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if threads is None and cpus >= CPUS_TO_SHARE:
            threads = cpus // 2
        self._executor = LLExecutor(threads) if threads else None

    def compile(self, wanted: StructuredOutput) -> Grammar:
        text = grammar_of(wanted)
        with self._lock:
            vocabulary = self._vocabulary = self._vocabulary or Vocabulary(self._tokenizer, self._vocab_size)
        make = partial(LLMatcher, vocabulary.library, text, log_level=0, limits=self._limits)
        return _Grammar(make, vocabulary, is_json=wanted.kind == "json_schema")

    def masks(self, matchers: Sequence[GrammarMatcher]) -> list[bytes]:
        own = cast(Sequence[_Matcher], matchers)
        bits = np.empty((len(own), -(-self._vocab_size // 32)), np.int32)
        if self._executor is None or len(own) < ROWS_TO_SHARE:
            for row, matcher in enumerate(own):
                fill_next_token_bitmask(matcher.state, bits, row)
        else:
            fill_next_token_bitmask_par(self._executor, [(one.state, row) for row, one in enumerate(own)], bits)
        return [matcher.checked(mask.tobytes()) for matcher, mask in zip(own, bits, strict=True)]


class _Grammar(Grammar):
    """What the matchers of a grammar learn of its regular expressions, they share, also that it is too much."""

    def __init__(self, make: Callable[[], LLMatcher], vocabulary: Vocabulary, *, is_json: bool) -> None:
        self.vocabulary = vocabulary
        self.spoiled = False
        """Whether a matcher failed: then the next one begins with another `LLMatcher`."""
        self._make = make
        self._is_json = is_json
        self._beginning = make()
        if self._beginning.is_error():
            raise InvalidRequestError(_reason(self._beginning))

    def matcher(self) -> "_Matcher":
        if self.spoiled:
            self.spoiled, self._beginning = False, self._make()
        return _Matcher(self._beginning.deep_copy(), self, JsonRuns(self.vocabulary) if self._is_json else None)


class _Matcher(GrammarMatcher):
    __slots__ = ("_grammar", "_runs", "state")

    def __init__(self, state: LLMatcher, grammar: _Grammar, runs: JsonRuns | None) -> None:
        self.state = state
        self._grammar = grammar
        self._runs = runs

    def accept(self, token_ids: Sequence[int]) -> None:
        if not self.state.consume_tokens(list(token_ids)):
            raise self._failure()
        if self._runs is not None:
            self._runs.feed(b"".join(map(self._grammar.vocabulary.texts.__getitem__, token_ids)))

    @property
    def ended(self) -> bool:
        return self.state.is_stopped()

    def forced(self) -> list[int]:
        return self.state.compute_ff_tokens()

    def checked(self, mask: bytes) -> bytes:
        """The mask that llguidance computed, if it did not fail: then it would be one that ends the output."""
        if self.state.is_error():
            raise self._failure()
        return mask if self._runs is None else self._runs.limit(mask)

    def _failure(self) -> RequestFailedError:
        self._grammar.spoiled = True
        return RequestFailedError(f"structured_output: {_reason(self.state)}")


def _reason(matcher: LLMatcher) -> str:
    """Why a matcher failed, in one line without an excerpt of the source."""
    reason = " ".join(_EXCERPT.sub("", matcher.get_error()).split())
    return "no text can match it" if reason == "NoExtensionBias" else reason[:LONGEST_REASON]
