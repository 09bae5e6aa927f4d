"""The executor "cpu"."""

from corelm_torch.batch import SequenceTable
from corelm_torch.hookspecs import ModelParts
from corelm_torch.parts import load_parts
from corelm_torch.sizing import choose_max_model_len, gib, num_swap_blocks
from corelm_torch.step import CAPABILITIES, finish_step

from corelm.api import ExecutorContext, ExecutorInfo, ModelLoadError, Progress, SimpleExecutor, StepPlan, StepResult
from corelm_cpu.mode import TorchMode, choose_mode
from corelm_cpu.resources import usable_cpus
from corelm_cpu.runner import Runner
from corelm_cpu.settings import CpuSettings


class CpuExecutor(SimpleExecutor):
    """Runs a model on the CPU.

    In float32 a sequence's tokens do not depend on what else is in its batches, nor on how its prompt is chunked; of a
    model that runs through transformers, only logits that are all but equal may change places.
    """

    _runner: Runner
    _table: SequenceTable

    def __init__(self, context: ExecutorContext) -> None:
        self._context = context
        self._settings = context.settings or CpuSettings()

    def load(self, progress: Progress) -> ExecutorInfo:
        context = self._context
        progress(0.0, "reading the configuration")
        threads = self._settings.threads or usable_cpus()
        parts = load_parts(context.model)
        max_model_len = choose_max_model_len(context.max_model_len, parts.config)
        self._runner = runner = self._load_runner(parts, threads, max_model_len, progress)
        self._table = SequenceTable(
            rows=context.max_num_seqs,
            max_model_len=max_model_len,
            block_size=context.block_size,
            padding_block=runner.cache.padding_block,
            vocab_size=parts.config.vocab_size,
            logits_processors=context.logits_processors,
        )
        progress(1.0, "loaded")
        swap_bytes = runner.cache.num_swap_bytes
        return ExecutorInfo(
            num_blocks=runner.num_blocks,
            block_size=context.block_size,
            vocab_size=parts.config.vocab_size,
            max_model_len=max_model_len,
            dtype=runner.dtype,
            device="cpu",
            capabilities=CAPABILITIES,
            embedding_size=parts.config.hidden_size,
            num_swap_blocks=num_swap_blocks(context),
            details={"threads": str(threads), **runner.details, "KV cache": gib(runner.cache.num_bytes)}
            | ({"swap space": gib(swap_bytes)} if swap_bytes else {}),
        )

    def _load_runner(self, parts: ModelParts, threads: int, max_model_len: int, progress: Progress) -> Runner:
        mode = choose_mode(self._settings, self._context.dtype, parts)
        if isinstance(mode, TorchMode):
            from corelm_cpu.torch_runner import TorchRunner  # imports torch, which takes seconds

            return TorchRunner(
                self._context,
                self._settings,
                parts,
                mode=mode,
                threads=threads,
                max_model_len=max_model_len,
                progress=progress,
            )
        from corelm_cpu.native_runner import NativeRunner

        assert parts.plain is not None  # or the mode would be another
        try:
            return NativeRunner(
                self._context,
                self._settings,
                parts.plain,
                mode=mode,
                threads=threads,
                max_model_len=max_model_len,
                progress=progress,
            )
        except MemoryError as error:
            raise ModelLoadError(f"{self._context.model.path}: {error}") from error

    def execute(self, plan: StepPlan) -> StepResult:
        cache = self._runner.cache
        cache.copy(plan.copies)
        cache.swap_out(plan.swap_out)
        cache.swap_in(plan.swap_in)
        batch = self._table.apply(plan)
        if not plan.slices:
            return StepResult(step_id=plan.step_id, token_ids=[])
        result, sampled = finish_step(plan, batch, self._runner.compute(batch))
        self._table.append(batch, sampled)
        return result

    def shutdown(self) -> None:
        if "_runner" in self.__dict__:
            self._runner.close()
        for name in ("_runner", "_table"):
            self.__dict__.pop(name, None)
