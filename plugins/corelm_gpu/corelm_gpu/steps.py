"""A step under way: in one part, or in smaller ones where the device had too little memory for it."""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from corelm_torch.batch import Batch, SequenceTable
from corelm_torch.step import step_result
from msgspec.structs import replace

from corelm.api import SequenceSlice, StepPlan, StepResult, TokenLogprobs
from corelm_gpu.prompt_states import PromptStates
from corelm_gpu.sampling import Sampling

NO_MEMORY = "the device has not enough memory left to compute this sequence"

Slices = tuple[SequenceSlice, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Some slices of a plan, or parts of them."""

    plan: StepPlan
    """With those slices alone."""
    batch: Batch
    computed: tuple[Sampling, PromptStates] | None
    """None if there was not enough memory for one token."""

    def wait(self) -> tuple[StepResult, np.ndarray]:
        """The result, and the ids for `SequenceTable.append`, once they are there."""
        if self.computed is None:
            errors = {piece.seq_id: NO_MEMORY for piece in self.plan.slices}
            result = StepResult(step_id=self.plan.step_id, token_ids=[[] for _ in self.plan.slices], errors=errors)
            return result, np.full(len(self.batch.sampled), -1)
        sampling, prompts = self.computed
        sampled = sampling.wait()
        return step_result(self.plan, self.batch, sampled, prompts), sampled.token_ids


@dataclass(kw_only=True, slots=True)
class Step:
    """A step that was submitted."""

    plan: StepPlan
    parts: list[Part]
    result: StepResult | None = field(default=None)
    """What it produced, once that is known."""

    def settle(self, table: SequenceTable) -> StepResult:
        """Wait for the result, and tell `table` of the tokens."""
        if self.result is None:
            results = []
            for part in self.parts:
                result, token_ids = part.wait()
                table.append(part.batch, token_ids)
                results.append(result)
            self.result = results[0] if len(results) == 1 else self._joined(results)
        return self.result

    def _joined(self, results: list[StepResult]) -> StepResult:
        token_ids: dict[int, list[int]] = {piece.seq_id: [] for piece in self.plan.slices}
        prompt_logprobs: dict[int, list[TokenLogprobs]] = defaultdict(list)
        joined = StepResult(step_id=self.plan.step_id, token_ids=[], logprobs={}, embeddings={}, errors={})
        for part, result in zip(self.parts, results, strict=True):
            for piece, sampled in zip(part.plan.slices, result.token_ids, strict=True):
                token_ids[piece.seq_id] += sampled
            for seq_id, scores in result.prompt_logprobs.items():
                prompt_logprobs[seq_id] += scores
            joined.logprobs.update(result.logprobs)
            joined.embeddings.update(result.embeddings)
            joined.errors.update(result.errors)
        return replace(joined, token_ids=list(token_ids.values()), prompt_logprobs=prompt_logprobs)


def halves(slices: Slices) -> tuple[Slices, Slices] | None:
    """Half of the slices each, or half of the tokens of the only one; None if it has but one."""
    if len(slices) > 1:
        return slices[: len(slices) // 2], slices[len(slices) // 2 :]
    (piece,) = slices
    first = piece.num_tokens // 2
    if not first:
        return None
    rest = replace(piece, start=piece.start + first, num_tokens=piece.num_tokens - first)
    return (replace(piece, num_tokens=first, sample=False),), (rest,)
