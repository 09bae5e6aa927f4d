"""The executor contract: what computes.

The engine sends a `StepPlan`, a delta of plain data, and gets a `StepResult`. The executor keeps, per
sequence, its tokens and its block table; the plan says what to add. The engine owns every KV block: the
executor writes only to positions of blocks that the plan gave to the sequence it is computing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from corelm.contracts.logits import LogitsProcessor
from corelm.contracts.model import ResolvedModel
from corelm.outputs import TokenLogprobs
from corelm.sampling import SamplingParams

Progress = Callable[[float, str], None]
"""Called during loading with the fraction done (0 to 1) and what is being done."""


class ExecutorContext(msgspec.Struct, frozen=True, kw_only=True):
    """What an executor's factory is given. `None` leaves the choice to the executor."""

    model: ResolvedModel
    settings: Any
    """An instance of the settings model that the plugin registered, or None."""
    dtype: str = "auto"
    """``auto``, ``float32``, ``bfloat16`` or ``float16``."""
    block_size: int = 16
    """Tokens per KV block that the user asked for."""
    max_model_len: int | None = None
    max_num_seqs: int
    """No plan holds more sequences than this."""
    max_num_batched_tokens: int
    """No plan computes more tokens than this."""
    kv_cache_tokens: int | None = None
    """Size of the KV cache in tokens."""
    swap_tokens: int = 0
    """Tokens whose keys and values preempted sequences may keep in host memory. An executor that cannot swap ignores it
    and reports no swap blocks."""
    logits_processors: Mapping[str, LogitsProcessor] = {}
    """Those that `SamplingParams.logits_processors` may name, in the order in which they are applied."""


class ExecutorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a loaded executor can do. The scheduler obeys it."""

    num_blocks: int
    """KV blocks; their ids are 0 to num_blocks - 1."""
    block_size: int
    """Tokens per KV block."""
    vocab_size: int
    max_model_len: int
    """Longest sequence, prompt and output together, that the model supports."""
    dtype: str
    device: str
    capabilities: frozenset[str] = frozenset()
    """Optional abilities; the engine refuses or does without what is not there.

    ``prefix_cache``: a sequence's first slice may start beyond 0; the blocks before it were computed for another
    sequence with the same beginning, and are only read.
    ``copy_blocks``: `StepPlan.copies`; together with ``prefix_cache`` it lets sequences fork.
    ``logprobs``: `SamplingParams.logprobs` and `prompt_logprobs`.
    ``penalties``: the presence, frequency and repetition penalty.
    ``token_masks``: `logit_bias`, `allowed_token_ids`, `bad_words` and `min_tokens`.
    ``logits_processors``: those of the context, each called once in a step with the rows of the sequences that use it.
    ``embeddings``: `SequenceStart.embed`, with `embedding_size`.
    ``grammar``: `SequenceSlice.forced` and `SequenceSlice.allowed`.
    """
    embedding_size: int = 0
    """Numbers in an embedding, if the executor makes any."""
    num_swap_blocks: int = 0
    """Blocks in host memory, with ids of their own from 0. Needs ``prefix_cache``, whose way of starting resumes."""
    pipeline_depth: int = 1
    """Steps that may be submitted before the first of them is collected. With 2 a slice may compute the token that the
    step before it samples; the plan is the same, and the executor knows the token by then."""
    details: Mapping[str, str] = {}
    """Lines for the start-up banner, such as ``{"threads": "8"}``."""


class SequenceStart(msgspec.Struct, frozen=True, kw_only=True):
    """A sequence the executor does not hold: a new one, or one that was released and comes back."""

    seq_id: int
    """Unique for the engine's lifetime."""
    token_ids: list[int]
    """All tokens known so far, the prompt first."""
    prompt_len: int
    """How many of `token_ids` are prompt. The rest were sampled before the sequence was released."""
    sampling: SamplingParams
    """`seed` is always set. The draw for output token i may depend only on `seed` and i."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Token sequences that may not appear: the last token of one is not sampled after its others."""
    end_token_ids: tuple[int, ...] = ()
    """Not sampled before there are `sampling.min_tokens` output tokens; empty if that is 0."""
    embed: bool = False
    """The step that computes the last position of the prompt gives its embedding. Nothing is sampled."""


class SequenceSlice(msgspec.Struct, frozen=True, kw_only=True):
    """Compute positions ``start`` to ``start + num_tokens - 1`` of one sequence."""

    seq_id: int
    start: int
    num_tokens: int
    new_block_ids: tuple[int, ...] = ()
    """Appended to the sequence's block table before computing. Position p lies in entry p // block_size."""
    sample: bool
    """Sample the token after the last position and append it to the sequence."""
    forced: tuple[int, ...] = ()
    """Output tokens that a grammar leaves no choice about, appended to the sequence before computing: they follow the
    token at position `start`, the last that was sampled. They may be more than `num_tokens` has room for."""
    allowed: bytes | None = None
    """What the token to be sampled may be, if that is limited: bit i % 8 of byte i // 8 is token i;
    ``4 * ceil(vocab_size / 32)`` bytes. Other limits hold beside it."""


class StepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One step: forget `released`, do `copies`, `swap_out` and `swap_in`, add `started`, then compute `slices`.

    Steps take effect in the order in which they are submitted. Block operations are pairs (from, to), done in their
    order. A sequence appears in at most one slice.
    """

    step_id: int
    """Counts up by one."""
    released: tuple[int, ...] = ()
    """Sequences (finished, aborted or preempted) whose state and block table are forgotten. An id that the
    executor does not hold is ignored."""
    copies: tuple[tuple[int, int], ...] = ()
    """KV blocks to copy within the cache: a forked sequence goes on in a copy of its parent's last block."""
    swap_out: tuple[tuple[int, int], ...] = ()
    """KV blocks to copy to swap blocks."""
    swap_in: tuple[tuple[int, int], ...] = ()
    """Swap blocks to copy back to KV blocks."""
    started: tuple[SequenceStart, ...] = ()
    slices: tuple[SequenceSlice, ...] = ()


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a step produced."""

    step_id: int
    token_ids: list[list[int]]
    """One list per slice, in the plan's order: the tokens that were sampled, none where `sample` is false."""
    logprobs: dict[int, list[TokenLogprobs]] = {}
    """By seq_id, for each token sampled for a sequence that asked for `SamplingParams.logprobs`."""
    prompt_logprobs: dict[int, list[TokenLogprobs]] = {}
    """By seq_id, for sequences that asked for `SamplingParams.prompt_logprobs`: of each prompt token that follows a
    position of the slice (positions start + 1 to start + num_tokens, as far as they lie in the prompt)."""
    embeddings: dict[int, bytes] = {}
    """By seq_id, for sequences to be embedded whose last position the step computed: the hidden state of that position
    after the model's last norm, divided by its Euclidean length; `ExecutorInfo.embedding_size` numbers, as float32 in
    little-endian order."""
    errors: dict[int, str] = {}
    """Sequences (by seq_id) that failed alone, with the reason. The others are valid."""


class Executor(ABC):
    """Runs the model. Every method is called from one thread of the engine, never two at once."""

    @abstractmethod
    def load(self, progress: Progress) -> ExecutorInfo:
        """Load weights and allocate the KV cache. Raises `ModelLoadError` with a remedy in the message."""

    @abstractmethod
    def submit(self, plan: StepPlan) -> Any:
        """Start a step and return a handle at once."""

    @abstractmethod
    def collect(self, handle: Any) -> StepResult:
        """Wait for the step behind `handle`. Any exception is fatal to the engine."""

    def check_health(self) -> None:
        """Raise if the executor can no longer run steps. Called between steps."""
        return

    def shutdown(self) -> None:
        """Free everything. May be called twice, and after a failed `load`."""
        return


class SimpleExecutor(Executor):
    """For executors without a queue of their own: implement `execute` in place of submit and collect."""

    @abstractmethod
    def execute(self, plan: StepPlan) -> StepResult:
        """Run one step."""

    def submit(self, plan: StepPlan) -> Any:
        return plan

    def collect(self, handle: Any) -> StepResult:
        return self.execute(handle)
