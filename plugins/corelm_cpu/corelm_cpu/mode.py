"""What computes a model, and in what precision, by the settings, the model and the machine."""

from dataclasses import dataclass
from typing import Literal

from corelm_torch.hookspecs import ModelParts

from corelm.api import ModelLoadError
from corelm_cpu.kernels import KernelsMissing, check_heads, kernels_name
from corelm_cpu.packed import WeightSetting
from corelm_cpu.settings import CpuSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeMode:
    """Native kernels compute all of it, with quantised weights."""

    weights: WeightSetting


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchMode:
    """PyTorch computes; in bfloat16 the kernels may do attention."""

    dtype: Literal["auto", "bfloat16", "float32"]
    """`auto` is bfloat16 where the CPU has instructions for it."""
    why: str = ""
    """Why the kernels do not, if they would otherwise."""


Mode = NativeMode | TorchMode

_DTYPES = ("auto", "bfloat16", "float32")
_ALLOWED = {
    "auto": ("auto", "w4", "w8", "bf16", "f32"),
    "bfloat16": ("auto", "w4", "w8", "bf16"),
    "float32": ("auto", "f32"),
}
"""Settings of the weights, by dtype."""


def choose_mode(settings: CpuSettings, dtype: str, parts: ModelParts) -> Mode:
    """Raises `ModelLoadError` if settings contradict each other, or ask for what cannot be."""
    if dtype not in _ALLOWED:
        raise ModelLoadError(f"The CPU executor cannot compute in {dtype}; use {', '.join(_DTYPES)}.")
    weights = settings.weights
    if weights not in _ALLOWED[dtype]:
        raise ModelLoadError(
            f"cpu.weights {weights} does not go with dtype {dtype}, but {', '.join(_ALLOWED[dtype])} would."
        )
    if dtype == "float32" or weights == "f32":
        return TorchMode(dtype="float32")
    if weights == "bf16" or (dtype == "bfloat16" and weights == "auto"):
        return TorchMode(dtype="bfloat16")
    why = _why_not_native(settings, parts)
    if not why:
        return NativeMode(weights=weights)
    if weights != "auto":
        raise ModelLoadError(f"cpu.weights {weights} needs the native kernels: {why}.")
    return TorchMode(dtype="auto", why=why)


def _why_not_native(settings: CpuSettings, parts: ModelParts) -> str:
    """Empty if they can run the model."""
    if settings.kernels == "torch":
        return "cpu.kernels is torch"
    if not parts.plain:
        return f"the layers of {parts.config.architecture} are its plugin's"
    try:
        kernels_name()
        check_heads(parts.config.head_dim)
    except KernelsMissing as why:
        return str(why)
    return ""
