"""Steps of one token a sequence, captured as CUDA graphs by batch size, so that no step waits for launches.

Where there are no graphs, in Triton's interpreter, the same steps are computed anew each time.
"""

import bisect
from collections.abc import Callable

import numpy as np
import torch
from corelm_torch.batch import Batch

from corelm.api import Progress
from corelm_gpu.attention_plan import AttentionPlan, Decodes, choose_splits
from corelm_gpu.inputs import StepInputs
from corelm_gpu.memory import free_memory
from corelm_gpu.staging import Staging

Forward = Callable[[StepInputs], torch.Tensor]
"""Computes the logits [rows, vocabulary] of a step."""


def graph_sizes(most: int) -> list[int]:
    """The batch sizes to capture, for batches of up to `most`: few rows too many, and not too many graphs."""
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, most + 32, 32)]
    return [*(size for size in sizes if size < most), most]


class DecodeGraphs:
    """Captured steps. `capture` them before `run`."""

    def __init__(
        self,
        forward: Forward,
        *,
        max_rows: int,
        max_blocks: int,
        block_size: int,
        kv_heads: int,
        device: torch.device,
    ) -> None:
        """Steps of up to `max_rows` sequences, each of up to `max_blocks` blocks."""
        self.sizes = graph_sizes(max_rows)
        self._forward = forward
        self._device = device
        self._kv_heads = kv_heads
        self._longest = max_blocks * block_size
        # Rows of arrays begin at multiples of 16 bytes, as kernels are compiled for.
        self._tokens = torch.zeros(5, -(-max_rows // 4) * 4, dtype=torch.int32, device=device)
        self._tokens[3] = -1
        self._tables = torch.zeros(max_rows, max_blocks, dtype=torch.int32, device=device)
        self._order = torch.arange(max_rows, dtype=torch.int32, device=device)
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self._logits: torch.Tensor
        """What captured steps compute, in its first rows. Outputs of their own would take memory for every size."""
        self._captured: dict[int, Callable[[], torch.Tensor]] = {}

    def fits(self, batch: Batch) -> bool:
        """Whether a step is one of those."""
        rows = len(batch.lengths)
        return (
            bool(self._captured)
            and rows == len(batch.token_ids) == len(batch.sampled)
            and 0 < rows <= self.sizes[-1]
            and batch.scored is None
            and not len(batch.embedded)
        )

    @torch.inference_mode()
    def capture(self, progress: Progress) -> None:
        """Capture steps of all sizes; the largest first, whose memory the others use, too."""
        for count, size in enumerate(reversed(self.sizes), start=1):
            self._captured[size] = self._capture(size)
            progress(count / len(self.sizes), f"capturing steps of {size} sequences")

    @torch.inference_mode()
    def cost(self) -> int:
        """Bytes that capturing all sizes takes, by what the largest and another one do. Nothing is captured then."""
        smallest, largest = self.sizes[0], self.sizes[-1]
        free = [free_memory(self._device)]
        for size in (largest, smallest):
            self._captured[size] = self._capture(size)
            free.append(free_memory(self._device))
        self._captured.clear()
        return free[0] - free[1] + (len(self.sizes) - 1) * (free[1] - free[2])

    def run(self, batch: Batch, staging: Staging) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [R, vocabulary], and the rows of their sequences [R]; both valid until the next step."""
        rows = len(batch.lengths)
        size = self.sizes[bisect.bisect_left(self.sizes, rows)]
        tokens = np.zeros((5, size), np.int64)
        tokens[3] = -1
        tokens[:, :rows] = batch.token_ids, batch.table_rows, batch.positions, batch.slots, batch.ends
        sent, tables = staging.send([tokens, batch.block_tables])
        self._tokens[:, :size].copy_(sent)
        self._tables[:rows, : tables.shape[1]].copy_(tables)
        return self._captured[size]()[:rows], self._tokens[1, :rows]

    def _capture(self, size: int) -> Callable[[], torch.Tensor]:
        inputs = self._inputs(size)
        if self._pool is None:
            return lambda: self._forward(inputs)
        warm = self._forward(inputs)  # compiles kernels, and lets libraries choose theirs
        if not self._captured:
            self._logits = warm
        logits = self._logits[:size]
        graph = torch.cuda.CUDAGraph()
        # What other threads do, perhaps on other devices, does not spoil it.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            logits.copy_(self._forward(inputs))

        def replay() -> torch.Tensor:
            graph.replay()
            return logits

        return replay

    def _inputs(self, size: int) -> StepInputs:
        token_ids, table_rows, positions, slots, lengths = self._tokens[:, :size]
        decodes = Decodes(
            tables=self._tables[:size],
            lengths=lengths,
            rows=self._order[:size],
            splits=choose_splits(self._longest, size * self._kv_heads),
        )
        plan = AttentionPlan(decodes=decodes, chunks=None)
        return StepInputs(token_ids, table_rows, positions, slots, plan)
