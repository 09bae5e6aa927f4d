"""A kernel with everything that a launch needs, to run it here or to compile it for a device that is not here.

Kernels are compiled anew for integers of 1 and for multiples of 16, unless they say that they need not: sizes that
change from step to step would have steps wait for the compiler.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel

_TYPES = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int8: "i8",
    torch.uint8: "u8",
}
_ALIGNED = [["tt.divisibility", 16]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """One launch of a kernel."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    """By parameter: tensors, ints and floats."""
    constants: Mapping[str, Any]
    """By parameter, for those that are ``tl.constexpr``."""
    num_warps: int = 4
    num_stages: int = 2

    def run(self) -> None:
        """Launch it on the device of its tensors; in the interpreter if Triton runs there."""
        if all(self.grid):
            self.kernel[self.grid](
                **self.arguments, **self.constants, num_warps=self.num_warps, num_stages=self.num_stages
            )

    def compile(self, target: GPUTarget) -> CompiledKernel:
        """Compile it for `target`, as a launch there would. Tensors may be on the meta device."""
        names = self.kernel.arg_names
        special = [param.name for param in self.kernel.params if not param.do_not_specialize]
        integers = {name: value for name, value in self.arguments.items() if type(value) is int}
        constants = {**self.constants, **{name: 1 for name in special if integers.get(name) == 1}}
        types = {name: _type(value) for name, value in self.arguments.items() if name not in constants}
        signature = {name: types.get(name, "constexpr") for name in names}
        aligned = {
            (names.index(name),): _ALIGNED
            for name in special
            if name in types and types[name] != "fp32" and integers.get(name, 0) % 16 == 0
        }
        source = ASTSource(self.kernel, signature, {(names.index(n),): v for n, v in constants.items()}, aligned)
        options = {"num_warps": self.num_warps, "num_stages": self.num_stages}
        return triton.compile(source, target=target, options=options)


def _type(value: Any) -> str:
    """Triton's name of an argument's type."""
    if isinstance(value, torch.Tensor):
        return f"*{_TYPES[value.dtype]}"
    return "fp32" if isinstance(value, float) else "i32"
