"""Results on their way to the host."""

import numpy as np
import torch


class Download:
    """A copy of a tensor to pinned memory, which nobody waits for until `wait`."""

    def __init__(self, tensor: torch.Tensor) -> None:
        pinned = tensor.device.type == "cuda"
        self._copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)
        self._copy.copy_(tensor, non_blocking=True)
        self._done = torch.cuda.Event() if pinned else None  # type: ignore[no-untyped-call]
        if self._done is not None:
            self._done.record()

    def wait(self) -> np.ndarray:
        """The tensor on the host."""
        if self._done is not None:
            self._done.synchronize()
        return self._copy.numpy()
