"""The logits processor contract: who changes what the model would say next, for the requests that ask for it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from corelm.contracts.tokenizer import Tokenizer


class LogitsProcessorContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a logits processor's factory is given."""

    settings: Any
    """An instance of the settings model that the plugin registered, or None."""
    tokenizer: Tokenizer


class LogitsRow(NamedTuple):
    """One sequence whose next token is about to be sampled. Valid during the call that it is given to."""

    argument: Any
    """What the request gave the processor: plain data that passed `LogitsProcessor.check`."""
    token_ids: Sequence[int]
    """Prompt and output so far, read-only. Executors give it as a buffer, of which numpy makes an array for free."""
    prompt_len: int
    """How many of `token_ids` are prompt."""


class LogitsProcessor(ABC):
    """A function of a sequence's logits, its tokens and an argument, computed for many sequences at once.

    It keeps no state between calls, and a row's result depends on nothing but that row: so a sequence gets the same
    tokens whatever shares its batches, and when it was preempted. Requests that do not use it pay nothing.
    """

    @abstractmethod
    def check(self, argument: Any) -> None:
        """Raise `InvalidRequestError` if `apply` cannot work with `argument`, which is what JSON can say.

        Called once for each request, in a thread other than that of `apply`, and in several at once.
        """

    @abstractmethod
    def apply(self, logits: Any, rows: Sequence[LogitsRow]) -> None:
        """Change `logits` [R, vocabulary] in place, row i for ``rows[i]``: the sequences of a step that use this.

        The type is the executor's, for those built on corelm_torch a ``torch.Tensor`` in float32 on their device. Masks
        and penalties have been applied, the temperature has not. -inf bans a token; at least one of each row must stay
        finite, and none may be NaN or +inf. What is raised fails the requests whose rows raise it, alone.
        """
