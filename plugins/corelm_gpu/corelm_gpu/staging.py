"""The numbers of a step, brought to the device in one copy."""

from collections.abc import Sequence
from itertools import cycle

import numpy as np
import torch

BUFFERS = 6
"""Copies that may be under way: two for each of three steps."""
ALIGNED = 4
"""Numbers that an array begins at a multiple of: 16 bytes, as kernels are compiled for."""


class Staging:
    """Pinned memory that copies to the device start from, so that nobody waits for them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffers = cycle([_Buffer(device) for _ in range(BUFFERS)])

    def send(self, arrays: Sequence[np.ndarray]) -> list[torch.Tensor]:
        """The arrays of integers on the device, as int32. What waits in the device's stream sees them."""
        sizes = [array.size for array in arrays]
        starts = np.cumsum([0] + [-(-size // ALIGNED) * ALIGNED for size in sizes]).tolist()
        buffer = next(self._buffers)
        host = buffer.take(starts[-1])
        for array, start, size in zip(arrays, starts, sizes, strict=False):
            host[start : start + size] = array.reshape(-1)
        sent = buffer.send(starts[-1])
        return [
            sent[start : start + size].view(array.shape)
            for array, start, size in zip(arrays, starts, sizes, strict=False)
        ]


class _Buffer:
    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pinned = device.type == "cuda"
        self._memory = torch.empty(0, dtype=torch.int32)
        self._copied = torch.cuda.Event() if self._pinned else None  # type: ignore[no-untyped-call]

    def take(self, size: int) -> np.ndarray:
        """Room for so many numbers, once the last copy of it is done."""
        if self._copied is not None:
            self._copied.synchronize()
        if len(self._memory) < size:
            self._memory = torch.empty(2 * size, dtype=torch.int32, pin_memory=self._pinned)
        return self._memory.numpy()

    def send(self, size: int) -> torch.Tensor:
        """Copy so many numbers to the device."""
        sent = torch.empty(size, dtype=torch.int32, device=self._device)
        sent.copy_(self._memory[:size], non_blocking=True)
        if self._copied is not None:
            self._copied.record()
        return sent
