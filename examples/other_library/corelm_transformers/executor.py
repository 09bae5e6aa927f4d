"""Runs any causal language model of transformers, without paged attention: every sequence has a cache of its own."""

import random
from dataclasses import dataclass

import torch
from transformers import (
    AutoModelForCausalLM,
    Cache,
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from corelm.api import (
    ExecutorContext,
    ExecutorInfo,
    ModelLoadError,
    Progress,
    SamplingParams,
    SequenceSlice,
    SequenceStart,
    SimpleExecutor,
    StepPlan,
    StepResult,
)

DTYPES = {"auto": torch.float32, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SEQUENCES_AT_FULL_LENGTH = 4
"""What the KV cache holds unless its size was given."""
NO_TOKENS = torch.LongTensor([[]])


@dataclass
class Held:
    """What the executor keeps of a sequence."""

    start: SequenceStart
    token_ids: list[int]
    cache: Cache | None = None
    """Keys and values in whatever form the model likes; it makes the first one."""


class TransformersExecutor(SimpleExecutor):
    """One forward pass for each slice of a plan: simple, correct, and slow.

    The blocks of a plan are not looked at, as each sequence's keys and values lie in a cache of its own; the engine
    counts them all the same, which bounds the memory. It has no optional capability: a sequence starts at position 0,
    and one that comes back is computed anew. A sequence whose logits are not finite fails alone.
    """

    def __init__(self, context: ExecutorContext) -> None:
        self._context = context
        self._held: dict[int, Held] = {}

    def load(self, progress: Progress) -> ExecutorInfo:
        context = self._context
        if context.model.format != "huggingface":
            raise ModelLoadError(f"{context.model.path}: this executor needs a directory with config.json and weights")
        progress(0.0, "reading the weights")
        try:
            self._model = AutoModelForCausalLM.from_pretrained(
                context.model.path, dtype=DTYPES[context.dtype], local_files_only=True, use_safetensors=True
            )
        except (OSError, ValueError) as error:
            raise ModelLoadError(f"transformers cannot load {context.model.path}: {error}") from error
        progress(1.0, "loaded")
        supported: int = self._model.config.max_position_embeddings
        max_model_len = min(context.max_model_len or supported, supported)
        tokens = context.kv_cache_tokens or SEQUENCES_AT_FULL_LENGTH * max_model_len
        return ExecutorInfo(
            num_blocks=tokens // context.block_size,
            block_size=context.block_size,
            vocab_size=self._model.config.vocab_size,
            max_model_len=max_model_len,
            dtype=str(self._model.dtype).removeprefix("torch."),
            device=str(self._model.device),
        )

    def execute(self, plan: StepPlan) -> StepResult:
        for seq_id in plan.released:
            self._held.pop(seq_id, None)
        for start in plan.started:
            self._held[start.seq_id] = Held(start, list(start.token_ids))
        errors: dict[int, str] = {}
        token_ids = [self._compute(item, errors) for item in plan.slices]
        return StepResult(step_id=plan.step_id, token_ids=token_ids, errors=errors)

    @torch.inference_mode()
    def _compute(self, item: SequenceSlice, errors: dict[int, str]) -> list[int]:
        """Extend the sequence's cache, and sample if that is asked for."""
        held = self._held[item.seq_id]
        computed = held.token_ids[item.start : item.start + item.num_tokens]
        output = self._model(torch.tensor([computed]), cache=held.cache, use_cache=True, logits_to_keep=1)
        held.cache = output.cache
        if not item.sample:
            return []
        logits = output.logits[0, -1].float()
        if not logits.max().isfinite():
            errors[item.seq_id] = "the model's logits are not finite"
            return []
        token = sample(logits, held.start.sampling, len(held.token_ids) - held.start.prompt_len)
        held.token_ids.append(token)
        return [token]

    def shutdown(self) -> None:
        self._held.clear()
        self.__dict__.pop("_model", None)


def sample(logits: torch.Tensor, params: SamplingParams, index: int) -> int:
    """The token of output position `index` from `logits` [vocabulary]."""
    if params.greedy:
        return int(logits.argmax())
    scores = warpers(params)(NO_TOKENS, logits[None])
    totals = scores.double().softmax(-1).cumsum(-1)[0]
    # The draw depends on nothing but the seed and the position, so that preemption and neighbours cannot change it.
    point = random.Random(f"{params.seed} {index}").random() * totals[-1]
    return int(torch.searchsorted(totals, point, right=True))


def warpers(params: SamplingParams) -> LogitsProcessorList:
    """What transformers' own `generate` does before it draws."""
    chosen = LogitsProcessorList([TemperatureLogitsWarper(params.temperature)])
    if params.top_k > 0:
        chosen.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        chosen.append(TopPLogitsWarper(params.top_p))
    if params.min_p > 0:
        chosen.append(MinPLogitsWarper(params.min_p))
    return chosen
