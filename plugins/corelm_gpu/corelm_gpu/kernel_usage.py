"""What compiled kernels take of a device."""

import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel

CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


class Usage(NamedTuple):
    """What a compiled kernel takes."""

    registers: int
    """Of a thread."""
    shared: int
    """Bytes of a program."""
    spilled: int
    """What did not fit into registers: bytes of a thread's stack, on AMD devices registers."""


def usage(kernel: CompiledKernel, target: GPUTarget) -> Usage:
    """Read from the compiled object."""
    shared = kernel.metadata.shared
    if target.backend == "hip":
        text = kernel.asm["amdgcn"]
        registers, spilled = (int(*re.findall(rf"\.vgpr_{name}:\s+(\d+)", text)) for name in ("count", "spill_count"))
        return Usage(registers, shared, spilled)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        found = subprocess.run([CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    registers, stack = (int(*re.findall(rf"{name}:(\d+)", found)) for name in ("REG", "STACK"))
    return Usage(registers, shared, stack)
