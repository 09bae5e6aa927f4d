"""One request inside the engine: its choices, their sequences, and what it tells its client."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

import msgspec

from corelm.engine.choice import Choice
from corelm.outputs import RequestOutput, TokenLogprobs
from corelm.scheduler.sequence import Sequence

Branch = Callable[[Sequence, int, list[int]], Sequence]
"""Makes a new sequence of a request from an old one, a number within the request and its tokens."""


class Sequences(Protocol):
    """What a request may do with its sequences. The engine implements it."""

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Let `child` run, on its parent's blocks if that is possible."""

    def retire(self, sequence: Sequence) -> None:
        """Take a finished sequence out."""

    def resume(self, sequence: Sequence) -> None:
        """Let a sequence in lockstep go on."""

    def follow(self, sequence: Sequence, choice: Choice) -> None:
        """Let a sequence whose choice has a grammar go on as that allows."""


class Request(ABC):
    """A request begins with one sequence, `first`, which may branch."""

    def __init__(self, request_id: str, first: Sequence) -> None:
        self.request_id = request_id
        self.first = first
        self.sequences = {first.seq_id: first}
        """Those that live, by seq_id. Kept by the engine."""
        wanted = first.sampling.prompt_logprobs is not None
        self._prompt_logprobs: list[TokenLogprobs | None] | None = [None] * first.prompt_len if wanted else None

    @property
    def number(self) -> int:
        """Unique for the engine's lifetime: the seq_id of its first sequence."""
        return self.first.seq_id

    @abstractmethod
    def advance(
        self, sequences: Sequences, sequence: Sequence, token_ids: list[int], logprobs: list[TokenLogprobs] | None
    ) -> list[RequestOutput]:
        """What the client is told when one of the sequences got tokens."""

    def enter_prompt_logprobs(self, start: int, entries: list[TokenLogprobs]) -> None:
        """Keep the log-probabilities of the prompt tokens from position `start` on."""
        if self._prompt_logprobs is not None:
            for position, entry in enumerate(entries[: self.first.prompt_len - start], start):
                self._prompt_logprobs[position] = entry


class SingleRequest(Request):
    """One choice: what almost every request is."""

    def __init__(self, request_id: str, choice: Choice) -> None:
        super().__init__(request_id, choice.sequence)
        self._choice = choice
        choice.prompt_logprobs = self._prompt_logprobs

    def advance(
        self, sequences: Sequences, sequence: Sequence, token_ids: list[int], logprobs: list[TokenLogprobs] | None
    ) -> list[RequestOutput]:
        return [_advance(sequences, self._choice, token_ids, logprobs)]


class GroupRequest(Request):
    """Several choices, which share the prompt: once it is computed the first sequence branches."""

    def __init__(
        self,
        request_id: str,
        first: Sequence,
        size: int,
        n: int,
        branch: Branch,
        choose: Callable[[int, Sequence], Choice],
    ) -> None:
        """Generates `size` choices and tells of `n`. `choose` makes the choice with an index from its sequence."""
        super().__init__(request_id, first)
        self._size = size
        self._n = n
        self._branch = branch
        self._choose = choose
        self._choices: dict[int, Choice] = {}

    def advance(
        self, sequences: Sequences, sequence: Sequence, token_ids: list[int], logprobs: list[TokenLogprobs] | None
    ) -> list[RequestOutput]:
        if not self._choices:
            self._begin(sequences)
        choice = self._choices[sequence.seq_id]
        return self._tell(choice, _advance(sequences, choice, token_ids, logprobs))

    def _begin(self, sequences: Sequences) -> None:
        self._add(0, self.first)
        for index in range(1, self._size):
            child = self._branch(self.first, index, self.first.token_ids[: self.first.prompt_len])
            sequences.fork(self.first, child)
            self._add(index, child)

    def _add(self, index: int, sequence: Sequence) -> None:
        choice = self._choices[sequence.seq_id] = self._choose(index, sequence)
        choice.prompt_logprobs = self._prompt_logprobs

    def _tell(self, choice: Choice, output: RequestOutput) -> list[RequestOutput]:
        return [output]


class BestOfRequest(GroupRequest):
    """Tells nothing before all choices are there, then the best ones."""

    def _begin(self, sequences: Sequences) -> None:
        self._outputs: dict[int, list[RequestOutput]] = {index: [] for index in range(self._size)}
        super()._begin(sequences)

    def _tell(self, choice: Choice, output: RequestOutput) -> list[RequestOutput]:
        self._outputs[choice.index].append(output)
        if not all(choice.finished for choice in self._choices.values()):
            return []
        # Python's sort keeps the order of equal ones, so the lower index wins.
        ranked = sorted(self._choices.values(), key=_mean_logprob, reverse=True)
        return [
            msgspec.structs.replace(output, index=place)
            for place, choice in enumerate(ranked[: self._n])
            for output in self._outputs[choice.index]
        ]


def _advance(
    sequences: Sequences, choice: Choice, token_ids: list[int], logprobs: list[TokenLogprobs] | None
) -> RequestOutput:
    output = choice.advance(token_ids, logprobs)
    if choice.matcher is not None:
        sequences.follow(choice.sequence, choice)
    if choice.finished:
        sequences.retire(choice.sequence)
    return output


def _mean_logprob(choice: Choice) -> float:
    return choice.cumulative_logprob / max(choice.completion_tokens, 1)
