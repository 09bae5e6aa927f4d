"""How much of the device's memory is left for the KV cache."""

from collections.abc import Callable

import torch
from corelm_torch.sizing import gib

from corelm.api import ModelLoadError

INTERPRETER_BYTES = 2**32
"""Left in Triton's interpreter, where no device is measured."""


def left_for_cache(
    device: torch.device, fraction: float, *, step: Callable[[], None], graphs: Callable[[], int]
) -> int:
    """Bytes that the cache may take of the device's memory.

    `step` computes the largest step that there will be, `graphs` says what captured ones take. `fraction` of the memory
    is for weights, steps and cache together, unless other processes hold more of it. Raises `ModelLoadError` if there
    is not even enough for the step.
    """
    if device.type != "cuda":
        return INTERPRETER_BYTES
    torch.cuda.reset_peak_memory_stats(device)
    weights = allocated_memory(device)
    try:
        step()
        peak = torch.cuda.max_memory_allocated(device)
        taken = peak + graphs()
    except torch.OutOfMemoryError as error:
        raise ModelLoadError(
            f"The model takes {gib(weights)} of the {gib(total_memory(device))} that {device} has, and what is left is "
            "not enough to compute a step. Choose a smaller model or smaller steps (--max-num-batched-tokens), or free "
            f"memory: {error}"
        ) from error
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    others = total - free - torch.cuda.memory_reserved(device)
    return min(int(fraction * total), total - others) - taken


def allocated_memory(device: torch.device) -> int:
    """Bytes that tensors of this process take; 0 if that is not known."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def free_memory(device: torch.device) -> int:
    """Bytes that nobody holds; 0 if that is not known."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0


def total_memory(device: torch.device) -> int:
    """Bytes that the device has."""
    return torch.cuda.mem_get_info(device)[1]
