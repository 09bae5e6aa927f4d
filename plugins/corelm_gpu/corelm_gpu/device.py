"""The device, and what it is able to do."""

import torch
import triton

from corelm.api import ModelLoadError

LEAST_CAPABILITY = (8, 0)
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def find_device(number: int) -> torch.device:
    """The device to run on: under Triton's interpreter, which is for tests, the CPU. Raises `ModelLoadError`."""
    if triton.knobs.runtime.interpret:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        build = f"PyTorch {torch.__version__}, built for CUDA {torch.version.cuda}"
        raise ModelLoadError(
            f"The executor gpu found no device ({build}). Install a driver and a build of PyTorch that go together, or "
            "choose --executor cpu."
        )
    if number >= torch.cuda.device_count():
        raise ModelLoadError(f"There is no device {number}: this process sees {torch.cuda.device_count()}.")
    capability = torch.cuda.get_device_capability(number)
    if torch.version.hip is None and capability < LEAST_CAPABILITY:
        name = torch.cuda.get_device_name(number)
        raise ModelLoadError(
            f"{name} has the compute capability {capability[0]}.{capability[1]}; the executor gpu needs "
            f"{LEAST_CAPABILITY[0]}.{LEAST_CAPABILITY[1]} or higher."
        )
    return torch.device("cuda", number)


def choose_dtype(asked: str) -> torch.dtype:
    """The type of weights, activations and KV cache. Raises `ModelLoadError`."""
    if asked == "auto":
        return torch.bfloat16
    if asked not in DTYPES:
        raise ModelLoadError(f"The executor gpu cannot compute in {asked}; choose one of {', '.join(DTYPES)}.")
    return DTYPES[asked]


def free_memory(device: torch.device) -> tuple[int, int]:
    """Bytes that are free, and all there are."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)
    return 2**32, 2**32  # of the interpreter's machine, about which it says nothing


def device_name(device: torch.device) -> str:
    """For the start-up banner."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "Triton's interpreter"
