"""What ``corelm doctor`` says about the GPU executor. Imports neither torch nor Triton, which takes seconds."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from corelm.api import Finding

DEVICE_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dxg")
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")


def why_no_device() -> str | None:
    """Why this machine cannot run the executor, as far as its devices say."""
    return None if any(Path(file).exists() for file in DEVICE_FILES) else "there is no GPU"


def findings() -> Iterator[Finding]:
    """Whether there is a device, a driver, and builds of PyTorch and Triton for it."""
    if why := why_no_device():
        yield Finding(level="note", text=f"the executor gpu cannot run: {why}")
        return
    if NVIDIA_DRIVER.exists():
        driver = NVIDIA_DRIVER.read_text().partition("\n")[0].removeprefix("NVRM version:").strip()
        yield Finding(level="ok", text=f"driver: {driver}")
    torch, triton = _version("torch"), _version("triton")
    if torch.endswith("+cpu"):
        remedy = "install a build of PyTorch for the GPU's driver"
        yield Finding(level="problem", text=f"PyTorch {torch} is built for the CPU alone", remedy=remedy)
    else:
        yield Finding(level="ok", text=f"PyTorch {torch}")
    if triton:
        yield Finding(level="ok", text=f"Triton {triton}")
    else:
        yield Finding(level="problem", text="Triton is not installed", remedy="pip install triton")


def _version(distribution: str) -> str:
    """Empty if it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
