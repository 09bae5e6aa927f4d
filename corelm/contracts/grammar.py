"""The grammar contract: what keeps an output to a JSON Schema, a regular expression, a choice or a grammar.

The engine holds the state of every output; executors get nothing but masks and forced tokens.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from corelm.contracts.tokenizer import Tokenizer
from corelm.sampling import StructuredOutput


class GrammarContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a grammar compiler's factory is given."""

    settings: Any
    """An instance of the settings model that the plugin registered, or None."""
    tokenizer: Tokenizer
    vocab_size: int
    """Tokens that the executor scores, 0 to vocab_size - 1; the tokenizer may know more or fewer."""


class GrammarMatcher(ABC):
    """Where one output stands in its grammar. Used by one thread at a time.

    What its methods raise fails the request alone: `RequestFailedError` if the source is to blame, with a reason for
    the client.
    """

    @abstractmethod
    def accept(self, token_ids: Sequence[int]) -> None:
        """Go on by tokens that the mask or `forced` allowed. The tokenizer's end tokens never come here."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether the output is whole and nothing but its end can follow: then no further token is asked for."""

    def forced(self) -> list[int]:
        """Tokens of text that has to come next, cut as the tokenizer would; fewer where that depends on what follows.

        The engine passes those that it uses to `accept`.
        """
        return []


class Grammar(ABC):
    """A compiled grammar, for any number of outputs."""

    @abstractmethod
    def matcher(self) -> GrammarMatcher:
        """A fresh matcher at the beginning of an output. Takes microseconds: the engine's thread may call it."""


class GrammarCompiler(ABC):
    """Makes grammars for one tokenizer. Its factory is called while the engine loads, so it leaves slow work for later.

    A mask says which tokens may be sampled next: bit i % 8 of byte i // 8 is token i, and it has
    ``4 * ceil(vocab_size / 32)`` bytes, the bits beyond the vocabulary clear. The tokenizer's end tokens are in it
    exactly where the output may end; control tokens are not, unless the source asks for them.
    """

    @abstractmethod
    def compile(self, wanted: StructuredOutput) -> Grammar:
        """Raises `InvalidRequestError` for a source that is wrong, unsupported or too large.

        Called in threads for this alone, with a stack of 128 MiB, in two at once at most. The engine keeps grammars and
        compiles a source that several requests share once. A request waits for some seconds at most, but the thread is
        lost until this returns: the work must have a bound, whatever the source is.
        """

    @abstractmethod
    def masks(self, matchers: Sequence[GrammarMatcher]) -> list[bytes]:
        """The masks of all outputs of a step that have a grammar, in one call.

        If it raises, it is asked again row by row, and what a row raises fails its request alone.
        """
