"""From a checkpoint's tensors to packed weights."""

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from corelm_torch.arrays import Floats
from corelm_torch.config import ModelConfig
from corelm_torch.weights import Encoding, Weight, check_weights, plain_shapes

from corelm.api import Progress
from corelm_cpu.packed.kinds import SOURCES, is_taken
from corelm_cpu.packed.layout import Kind, Layout, Matrix, PackedWeights
from corelm_cpu.packed.native import allocate, pack_rows
from corelm_cpu.packed.plan import RUN, Part, plan_matrices, vector_name

_WEIGHTS_AT_A_TIME = 2**20
"""About as many are packed by one task of a thread."""
_TASKS_AHEAD = 4
"""For each thread; more would keep more of the checkpoint in memory."""


def pack_weights(
    config: ModelConfig, weights: Iterable[Weight], layout: Layout, *, threads: int, progress: Progress
) -> PackedWeights:
    """Pack the weights of a plain model as `layout` says.

    Raises `ModelLoadError` unless they are what `config` asks for, and `MemoryError`.
    """
    shapes = plain_shapes(config)
    with ThreadPoolExecutor(threads) as pool:
        packer = _Packer(config, PackedWeights(allocate(layout.num_bytes), layout), pool, _TASKS_AHEAD * threads)
        for count, weight in enumerate(check_weights(weights, shapes), start=1):
            packer.add(weight)
            progress(count / len(shapes), weight.name)
        return packer.finish()


class _Packer:
    """Puts tensors where they belong, matrices in other threads."""

    def __init__(self, config: ModelConfig, packed: PackedWeights, pool: ThreadPoolExecutor, tasks_ahead: int) -> None:
        self._parts = {part.tensor: (matrix.name, part) for matrix in plan_matrices(config) for part in matrix.parts}
        self._packed = packed
        self._pool = pool
        self._tasks_ahead = tasks_ahead
        self._tasks: deque[Future[None]] = deque()

    def add(self, weight: Weight) -> None:
        """Pack a tensor, sooner or later."""
        tensor, _, suffix = weight.name.rpartition(".")
        if tensor not in self._parts:
            self._floats(vector_name(weight.name))[:] = weight.values()
            return
        name, part = self._parts[tensor]
        if suffix == "bias":
            self._floats(f"{name}.bias")[part.output(np.arange(weight.shape[0]))] = weight.values()
            return
        matrix = self._packed.matrices[name]
        inputs = weight.shape[1]
        count = max(_WEIGHTS_AT_A_TIME // inputs // RUN, 1) * RUN
        for row in range(0, weight.shape[0], count):
            data = weight.data[row : row + count]
            some = replace(weight, shape=(len(data), inputs), data=data)
            self._start(some, matrix, replace(part, first=part.output(row)))

    def finish(self) -> PackedWeights:
        """What all that was added became."""
        for task in self._tasks:
            task.result()
        return self._packed

    def _floats(self, name: str) -> Floats:
        return self._packed.floats(self._packed.vectors[name])

    def _start(self, weight: Weight, matrix: Matrix, part: Part) -> None:
        if len(self._tasks) == self._tasks_ahead:
            self._tasks.popleft().result()
        self._tasks.append(self._pool.submit(_pack, weight, matrix.kind, self._packed.address(matrix), part))


def _pack(weight: Weight, kind: Kind, address: int, part: Part) -> None:
    """Pack a tensor's rows into the matrix at `address`."""
    encoding, data = weight.encoding, weight.data
    if not is_taken(encoding, kind):
        encoding, data = Encoding.F32, weight.values().view(np.uint8)
    pack_rows(address, kind, part.first, part.stride, SOURCES[encoding], data, weight.shape[1])
