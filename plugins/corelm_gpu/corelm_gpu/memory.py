"""How much of the device's memory is left for the KV cache."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
    with enough_memory(device, "compute a step", "a smaller model or smaller steps (--max-num-batched-tokens)"):
        step()
        peak = torch.cuda.max_memory_allocated(device)
        taken = peak + graphs()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    others = total - free - torch.cuda.memory_reserved(device)
    return min(int(fraction * total), total - others) - taken


@contextmanager
def enough_memory(device: torch.device, purpose: str, remedy: str) -> Iterator[None]:
    """Turn running out of memory, within this block, into a `ModelLoadError` that names the purpose and a remedy."""
    before = allocated_memory(device)
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ModelLoadError(
            f"{device} has {gib(total_memory(device))} of memory, of which this process had taken {gib(before)}, and "
            f"not enough is left to {purpose}. Choose {remedy}, or free memory: {error}"
        ) from error


def allocated_memory(device: torch.device) -> int:
    """Bytes that tensors of this process take; 0 if that is not known."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def free_memory(device: torch.device) -> int:
    """Bytes that nobody holds, nor PyTorch for later; 0 if that is not known."""
    if device.type != "cuda":
        return 0
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(device)[0]


def total_memory(device: torch.device) -> int:
    """Bytes that the device has."""
    return torch.cuda.mem_get_info(device)[1]
