"""Registers the executor "gpu"."""

from collections.abc import Iterable, Mapping

from corelm.api import Executor, ExecutorContext, Finding, ModelLoadError, Register, hookimpl
from corelm_gpu.doctor import findings, why_no_device
from corelm_gpu.settings import GpuSettings


def create(context: ExecutorContext) -> Executor:
    """Make a GPU executor. Imports torch and Triton, so it takes seconds. Raises `ModelLoadError` without them."""
    try:
        import torch  # noqa: F401
        import triton  # noqa: F401
    except ImportError as error:
        raise ModelLoadError(
            f"The executor gpu needs PyTorch and Triton, which cannot be imported: {error}. Install builds of both for "
            "this GPU's driver, or choose --executor cpu."
        ) from error
    from corelm_gpu.executor import GpuExecutor

    return GpuExecutor(context)


@hookimpl
def corelm_register_executors(register: Register[ExecutorContext, Executor]) -> None:
    register(
        "gpu",
        create,
        settings=GpuSettings,
        summary="Runs models on CUDA and ROCm devices, with Triton kernels.",
        unavailable=why_no_device,
    )


@hookimpl
def corelm_diagnose(settings: Mapping[str, GpuSettings]) -> Iterable[Finding]:
    return findings()
