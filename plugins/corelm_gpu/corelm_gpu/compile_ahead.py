"""Compiles every kernel for a device that need not be here: ``python -m corelm_gpu.compile_ahead sm_90``.

Prints a table of what each takes, read from the compiled objects.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel

from corelm_gpu.kernels.copy_blocks import copy_blocks
from corelm_gpu.kernels.decode_attention import decode_attention
from corelm_gpu.kernels.launch import Launch
from corelm_gpu.kernels.norm import add_norm
from corelm_gpu.kernels.prefill_attention import prefill_attention
from corelm_gpu.kernels.quantised_linear import quantised_linear
from corelm_gpu.kernels.rotate_write import rotate_write
from corelm_gpu.kernels.sample import sample
from corelm_gpu.kernels.silu import silu_mul
from corelm_gpu.kernels.token_mask import apply_mask

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


class Usage(NamedTuple):
    """What a compiled kernel takes."""

    registers: int
    """Of a thread."""
    shared: int
    """Bytes of a program."""
    spilled: int
    """What did not fit into registers: bytes of a thread's stack, on AMD devices registers."""


def tensor(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """A tensor without memory."""
    return torch.empty(*shape, dtype=dtype, device="meta")


def ints(*shape: int) -> torch.Tensor:
    """Indices without memory."""
    return tensor(*shape, dtype=torch.int32)


def floats(*shape: int) -> torch.Tensor:
    """Numbers in float32 without memory."""
    return tensor(*shape, dtype=torch.float32)


def launches() -> Iterator[tuple[str, Launch]]:
    """Every kernel as models use it, with the name of the case."""
    for head_dim in (64, 128, 256):
        yield from attention_launches(head_dim, window=None)
    yield from attention_launches(128, window=4096)
    yield "width 4096", add_norm(tensor(8, 4096), tensor(8, 4096), tensor(4096), tensor(8, 4096), 1e-5)
    yield "width 16384", add_norm(tensor(8, 16384), tensor(8, 16384), tensor(16384), tensor(8, 16384), 1e-5)
    yield "width 14336", silu_mul(tensor(8, 14336), tensor(8, 14336), tensor(8, 14336))
    cos, long = floats(8192, 64), tensor(8, dtype=torch.int64)
    q, k, cache = tensor(8, 32, 128), tensor(8, 8, 128), tensor(64, 8, 16, 128)
    yield "head_dim 128", rotate_write(q, k, k, cos, cos, long, long, q, cache, cache)
    yield "", apply_mask(floats(8, 128256), ints(4), ints(4, 4008))
    yield "", copy_blocks(ints(64, 64, 4096), ints(64, 64, 4096), ints(4, 2))
    parameters = (floats(8), ints(8), floats(8), floats(8), floats(8), tensor(8, dtype=torch.int64))
    yield "", sample(floats(8, 128256), *parameters)
    for rows in (8, 64):
        x, y, scales = tensor(rows, 4096), tensor(rows, 4096), tensor(4096, 128, dtype=torch.float16)
        nibbles, words = tensor(4096, 2048, dtype=torch.uint8), tensor(4096, 4096, dtype=torch.int8)
        yield f"4 bits, {rows} rows", quantised_linear(x, nibbles, scales, scales, None, y)
        yield f"8 bits, {rows} rows", quantised_linear(x, words, scales, None, None, y)


def attention_launches(head_dim: int, *, window: int | None) -> Iterator[tuple[str, Launch]]:
    """Both attention kernels with 4 query heads to a KV head."""
    name = f"head_dim {head_dim}" + ("" if window is None else ", window")
    q, cache, tables = tensor(8, 32, head_dim), tensor(64, 8, 16, head_dim), ints(8, 512)
    decode = decode_attention(
        q, cache, cache, tables, ints(8), ints(8), tensor(8, 32, head_dim), window=window, splits=8
    )
    yield from ((name, launch) for launch in decode)
    indices = (ints(9), ints(9), ints(3), ints(3), ints(3))
    yield name, prefill_attention(q, cache, cache, tables, *indices, tensor(8, 32, head_dim), window=window)


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


def main() -> None:
    """Compile everything for the target named on the command line."""
    target = TARGETS[sys.argv[1]]
    print("| kernel | case | warps | registers | shared memory | spilled |")
    print("|---|---|--:|--:|--:|--:|")
    for case, launch in launches():
        taken = usage(launch.compile(target), target)
        name = launch.kernel.__name__.strip("_")
        print(
            f"| {name} | {case} | {launch.num_warps} | {taken.registers} | {taken.shared} | {taken.spilled} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
