"""The executor "cpu"."""

import torch
from corelm_torch.batch import Batch, SequenceTable
from corelm_torch.config import load_config
from corelm_torch.models import LlamaModel
from corelm_torch.sampler import sample
from corelm_torch.weights import assign_weights, iter_weights

from corelm.api import ExecutorContext, ExecutorInfo, Progress, SimpleExecutor, StepPlan, StepResult
from corelm_cpu.kv_cache import KVCache
from corelm_cpu.ops import CpuOps, FastOps, InvariantOps
from corelm_cpu.packing import pack_linears
from corelm_cpu.resources import available_memory, usable_cpus
from corelm_cpu.settings import CpuSettings
from corelm_cpu.sizing import choose_dtype, choose_max_model_len, choose_num_blocks, gib, has_bfloat16


class CpuExecutor(SimpleExecutor):
    """Runs a model on the CPU.

    In float32 a sequence's tokens do not depend on what else is in its batches, nor on how its prompt is chunked.
    """

    _model: LlamaModel
    _table: SequenceTable
    _ops: CpuOps

    def __init__(self, context: ExecutorContext) -> None:
        self._context = context
        self._settings = context.settings or CpuSettings()

    def load(self, progress: Progress) -> ExecutorInfo:
        context = self._context
        progress(0.0, "reading the configuration")
        threads = self._settings.threads or usable_cpus()
        torch.set_num_threads(threads)
        config = load_config(context.model)
        dtype = choose_dtype(context.dtype)
        max_model_len = choose_max_model_len(context.max_model_len, config)
        model = LlamaModel(config, dtype=dtype)
        num_blocks = choose_num_blocks(
            context,
            config,
            dtype=dtype,
            max_model_len=max_model_len,
            weight_bytes=sum(weight.numel() * weight.element_size() for weight in model.parameters()),
            available=available_memory(),
            memory_fraction=self._settings.memory_fraction,
        )
        model.materialise(max_model_len=max_model_len, device=torch.device("cpu"))
        assign_weights(model, iter_weights(context.model, config), total=None, progress=progress)
        if dtype == torch.bfloat16 and has_bfloat16():
            pack_linears(model)
        self._model = model
        cache = KVCache(
            layers=config.num_layers,
            heads=config.num_kv_heads,
            num_blocks=num_blocks,
            block_size=context.block_size,
            head_dim=config.head_dim,
            dtype=dtype,
        )
        self._table = SequenceTable(
            rows=context.max_num_seqs,
            max_model_len=max_model_len,
            block_size=context.block_size,
            padding_block=cache.padding_block,
        )
        self._ops = InvariantOps(config, cache, dtype) if dtype == torch.float32 else FastOps(config, cache, dtype)
        progress(1.0, "loaded")
        return ExecutorInfo(
            num_blocks=num_blocks,
            block_size=context.block_size,
            vocab_size=config.vocab_size,
            max_model_len=max_model_len,
            dtype=str(dtype).removeprefix("torch."),
            device="cpu",
            capabilities=frozenset({"prefix_cache"}),
            details={
                "threads": str(threads),
                "KV cache": gib(cache.num_bytes),
            },
        )

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepResult:
        batch = self._table.apply(plan)
        token_ids: list[list[int]] = [[] for _ in plan.slices]
        errors: dict[int, str] = {}
        if plan.slices:
            sampled, failed = sample(self._logits(batch), batch.sampling)
            self._table.append(batch, sampled)
            for index, token, bad in zip(batch.sampled.tolist(), sampled.tolist(), failed.tolist(), strict=True):
                if bad:
                    errors[plan.slices[index].seq_id] = "the model computed no finite scores for the next token"
                else:
                    token_ids[index].append(token)
        return StepResult(step_id=plan.step_id, token_ids=token_ids, errors=errors)

    def _logits(self, batch: Batch) -> torch.Tensor:
        """Compute the step; logits [R, vocabulary] of the slices to be sampled."""
        self._ops.begin(batch)
        hidden = self._model(
            torch.from_numpy(batch.token_ids),
            torch.from_numpy(batch.positions),
            torch.from_numpy(batch.last_rows),
            self._ops,
        )
        return self._model.logits(hidden, self._ops)

    def shutdown(self) -> None:
        for name in ("_model", "_table", "_ops"):
            self.__dict__.pop(name, None)
