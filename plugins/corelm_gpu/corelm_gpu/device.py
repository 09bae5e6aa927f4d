"""The device, and what it is able to do."""

import torch
import triton

from corelm.api import ModelLoadError

LEAST_CAPABILITY = (8, 0)
FP8_CAPABILITY = (8, 9)
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
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def choose_dtype(asked: str) -> torch.dtype:
    """The type of weights and activations. Raises `ModelLoadError`."""
    if asked == "auto":
        return torch.bfloat16
    if asked not in DTYPES:
        raise ModelLoadError(f"The executor gpu cannot compute in {asked}; choose one of {', '.join(DTYPES)}.")
    return DTYPES[asked]


def choose_kv_dtype(asked: str, dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The type of the KV cache, where activations have `dtype`. Raises `ModelLoadError`."""
    if asked == "auto":
        return dtype
    if device.type == "cuda":
        _check_fp8(device)
    return torch.float8_e4m3fn


def _check_fp8(device: torch.device) -> None:
    name = torch.cuda.get_device_name(device)
    if torch.version.hip is not None:
        raise ModelLoadError(f"A KV cache in fp8 is not supported on {name} with ROCm; choose --gpu.kv auto.")
    capability = torch.cuda.get_device_capability(device)
    if capability < FP8_CAPABILITY:
        raise ModelLoadError(
            f"{name} has the compute capability {capability[0]}.{capability[1]}; a KV cache in fp8 needs "
            f"{FP8_CAPABILITY[0]}.{FP8_CAPABILITY[1]} or higher. Choose --gpu.kv auto."
        )


def check_device(device: torch.device) -> None:
    """Raise if the device broke: an error that makes every call fail that follows."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).query()


def device_name(device: torch.device) -> str:
    """For the start-up banner."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "Triton's interpreter"
