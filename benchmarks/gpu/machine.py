"""What the device is, and the best that it can do."""

import importlib.metadata
import platform

import torch
from clock import CUDA, DEVICE
from corelm_gpu.device import device_name
from corelm_gpu.doctor import why_no_device

LIBRARIES = ("triton", "numpy", "transformers", "safetensors", "gguf", "pytest")


def measure(bench, record):
    """Names, versions, and the ceilings that all shares are of."""
    record.add("device", device_name(DEVICE), **(properties() if CUDA else {}))
    versions = {name: version(name) for name in LIBRARIES}
    record.add("Python and PyTorch", f"{platform.python_version()}, {torch.__version__}", **versions)
    record.add("copy", f"{bench.ceilings.bytes_per_s / 1e12:.3f} TB/s", bytes_per_s=bench.ceilings.bytes_per_s)
    rate = bench.ceilings.operations_per_s
    record.add("product in bfloat16", f"{rate / 1e12:.1f} TFLOP/s", operations_per_s=rate)
    if CUDA and why_no_device() is not None:
        raise RuntimeError(f"PyTorch sees a device, but the executor `auto` would not: {why_no_device()}")


def properties():
    """Of the device."""
    found = torch.cuda.get_device_properties(0)
    return {
        "capability": f"{found.major}.{found.minor}",
        "multiprocessors": found.multi_processor_count,
        "memory": found.total_memory,
        "cuda": torch.version.cuda,
    }


def version(name):
    """Of a library, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
