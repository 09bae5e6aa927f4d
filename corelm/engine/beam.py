"""Beam search, with the rules of transformers: the same candidates, scores and end."""

from collections.abc import Callable
from typing import NamedTuple

from corelm.engine.choice import Choice
from corelm.engine.request import Branch, Request, Sequences
from corelm.outputs import RequestOutput, TokenLogprobs
from corelm.sampling import BeamSearch
from corelm.scheduler.sequence import Sequence


def num_candidates(width: int, num_end_tokens: int) -> int:
    """Continuations that are looked at, of each beam and of all, so that `width` of them do not end the output."""
    return max(2, 1 + num_end_tokens) * width


class Candidate(NamedTuple):
    """A beam with one more token."""

    logprob: float
    """Sum over all output tokens."""
    parent: Sequence
    token: int


class Finished(NamedTuple):
    """A whole output."""

    score: float
    logprob: float
    token_ids: list[int]


class BeamRequest(Request):
    """Goes on in rounds: when every beam has its candidates, the best of all of them are the next beams.

    Tells nothing before the end.
    """

    def __init__(
        self,
        request_id: str,
        first: Sequence,
        beam: BeamSearch,
        n: int,
        end_tokens: frozenset[int],
        branch: Branch,
        choose: Callable[[int, Sequence], Choice],
    ) -> None:
        """`end_tokens` finish a beam; `choose` makes a choice, which turns a finished beam into text."""
        super().__init__(request_id, first)
        self._beam = beam
        self._n = n
        self._end_tokens = end_tokens
        self._branch = branch
        self._choose = choose
        self._logprob = {first.seq_id: 0.0}
        """Of each beam, without the token of the running round."""
        self._round: dict[int, TokenLogprobs] = {}
        self._finished: list[Finished] = []
        self._branches = 0

    def advance(
        self, sequences: Sequences, sequence: Sequence, token_ids: list[int], logprobs: list[TokenLogprobs] | None
    ) -> list[RequestOutput]:
        if not logprobs:
            raise RuntimeError("the executor gave no log-probabilities for a beam")
        self._round[sequence.seq_id] = logprobs[0]
        if len(self._round) < len(self._logprob):
            return []
        if self._select(sequences):
            return []
        outputs = self._outputs()
        for beam in list(self.sequences.values()):
            sequences.retire(beam)
        return outputs

    def _select(self, sequences: Sequences) -> bool:
        """End a round; whether there is another one."""
        width = self._beam.width
        candidates = self._candidates()
        length = candidates[0].parent.num_output
        at_limit = length == self.first.max_tokens
        self._finish([c for c in candidates[:width] if at_limit or c.token in self._end_tokens], length)
        going_on = [c for c in candidates if not at_limit and c.token not in self._end_tokens][:width]
        if not going_on or not self._is_worth_it(going_on[0].logprob, length):
            return False
        self._continue(sequences, going_on)
        return True

    def _candidates(self) -> list[Candidate]:
        """The most probable continuations of all beams."""
        candidates = [
            Candidate(self._logprob[seq_id] + logprob, self.sequences[seq_id], token)
            for seq_id, entry in self._round.items()
            for token, logprob in zip(entry.top_ids, entry.top_logprobs, strict=True)
        ]
        candidates.sort(key=lambda candidate: candidate.logprob, reverse=True)
        return candidates[: num_candidates(self._beam.width, len(self._end_tokens))]

    def _finish(self, candidates: list[Candidate], length: int) -> None:
        for candidate in candidates:
            score = candidate.logprob / length**self._beam.length_penalty
            output = candidate.parent.token_ids[candidate.parent.prompt_len : -1]
            self._finished.append(Finished(score, candidate.logprob, [*output, candidate.token]))
        self._finished.sort(key=lambda finished: finished.score, reverse=True)
        del self._finished[self._beam.width :]

    def _is_worth_it(self, best: float, length: int) -> bool:
        """Whether beams, the best of which has the log-probability `best`, may still beat what is finished."""
        if len(self._finished) < self._beam.width:
            return True
        if self._beam.early_stopping is True:
            return False
        never = self._beam.early_stopping == "never" and self._beam.length_penalty > 0
        reached = float(self.first.max_tokens if never else length)
        possible: float = best / reached**self._beam.length_penalty
        return possible > self._finished[-1].score

    def _continue(self, sequences: Sequences, candidates: list[Candidate]) -> None:
        """Make the candidates the beams: one for each parent goes on in place, the others branch."""
        sampled = {seq_id: entry.token_id for seq_id, entry in self._round.items()}
        self._logprob, self._round = {}, {}
        staying: dict[int, float] = {}
        for candidate in candidates:
            parent = candidate.parent
            if candidate.token == sampled[parent.seq_id]:
                staying[parent.seq_id] = candidate.logprob
                continue
            self._branches += 1
            child = self._branch(parent, self._branches, [*parent.token_ids[:-1], candidate.token])
            sequences.fork(parent, child)
            self._logprob[child.seq_id] = candidate.logprob
        for seq_id in sampled:
            beam = self.sequences[seq_id]
            if seq_id in staying:
                sequences.resume(beam)
            else:
                sequences.retire(beam)
        self._logprob |= staying

    def _outputs(self) -> list[RequestOutput]:
        outputs = []
        for index, finished in enumerate(self._finished[: self._n]):
            choice = self._choose(index, self.first)
            choice.prompt_logprobs = self._prompt_logprobs
            choice.cumulative_logprob = finished.logprob
            outputs.append(choice.advance(finished.token_ids))
        return outputs
