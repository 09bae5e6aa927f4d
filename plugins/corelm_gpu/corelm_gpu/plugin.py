"""Registers the executor "gpu"."""

from corelm.api import Executor, ExecutorContext, Register, hookimpl
from corelm_gpu.settings import GpuSettings


def create(context: ExecutorContext) -> Executor:
    """Make a GPU executor. Imports torch and Triton, so it takes seconds."""
    from corelm_gpu.executor import GpuExecutor

    return GpuExecutor(context)


@hookimpl
def corelm_register_executors(register: Register[ExecutorContext, Executor]) -> None:
    register(
        "gpu",
        create,
        settings=GpuSettings,
        summary="Runs Llama-family models on CUDA and ROCm devices, with Triton kernels.",
        unavailable=why_unavailable,
    )


def why_unavailable() -> str | None:
    """Why this machine cannot run it, found without importing torch."""
    from pathlib import Path

    devices = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dxg")
    return None if any(Path(device).exists() for device in devices) else "there is no GPU"
