"""What an executor's step computes, as far as sampling needs it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from corelm.api import TokenLogprobs
from corelm_torch.arrays import Floats, Ints
from corelm_torch.batch import Batch, ScoredRows
from corelm_torch.logprobs import token_logprobs
from corelm_torch.selection import best_tokens


class PromptOutputs(Protocol):
    """What a model says of whole prompts."""

    @property
    def hidden(self) -> Floats:
        """[E, hidden size]: the hidden states of ``batch.embedded_rows`` after the last norm, in float32."""

    def scores(self, scored: ScoredRows, part: slice) -> Iterator[TokenLogprobs | None]:
        """The log-probabilities of a part of ``batch.scored``; None for rows that are no distribution."""


class StepOutputs(PromptOutputs, Protocol):
    """What a model says of the next tokens of a batch, too. All in float32."""

    @property
    def best(self) -> Ints:
        """[R]: the token with the highest logit for each of ``batch.sampled``, of equal ones the lowest id.

        -1 where no maximum is finite: with NaN or +inf among the logits, or nothing but -inf. With some -inf it may be.
        """

    @property
    def logits(self) -> Floats:
        """[D, vocabulary]: the logits of ``batch.detailed``, which `finish_step` changes."""


class HostOutputs(ABC):
    """Outputs whose logits the host has."""

    @abstractmethod
    def score(self, part: slice) -> Floats:
        """[rows, vocabulary]: the logits of a part of ``batch.scored``. Valid until it is called again."""

    def scores(self, scored: ScoredRows, part: slice) -> Iterator[TokenLogprobs | None]:
        """See `PromptOutputs`."""
        return token_logprobs(self.score(part), scored.token_ids[part], scored.top[part])


class HiddenStates(Protocol):
    """An array or tensor [rows, hidden size]."""

    def __getitem__(self: "Hidden", rows: slice, /) -> "Hidden":
        """Some of the rows."""


Hidden = TypeVar("Hidden", bound=HiddenStates)


class HeadOutputs(HostOutputs, Generic[Hidden]):
    """Outputs from hidden states, those of ``batch.output_rows`` and then of ``batch.embedded_rows``."""

    def __init__(
        self, batch: Batch, hidden: Hidden, head: Callable[[Hidden], Floats], floats: Callable[[Hidden], Floats]
    ) -> None:
        """`head` makes logits of hidden states, `floats` gives them in float32."""
        sampled = len(batch.sampled)
        self.hidden = floats(hidden[len(batch.output_rows) :])
        self._scored, self._head = hidden[sampled:], head
        logits = head(hidden[:sampled])
        self.best = best_tokens(logits)
        self.logits = logits if len(batch.detailed) == sampled else logits[batch.detailed]

    def score(self, part: slice) -> Floats:
        """See `HostOutputs`."""
        return self._head(self._scored[part])
