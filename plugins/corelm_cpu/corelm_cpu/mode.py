"""What computes a model, and in what precision, by the settings, the model and the machine."""

from dataclasses import dataclass
from typing import Literal

from corelm_torch.hookspecs import ModelParts

from corelm.api import ModelLoadError
from corelm_cpu.kernels import KernelsMissing, KVKind, check_heads, kernels_name
from corelm_cpu.packed import WeightSetting
from corelm_cpu.settings import CpuSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeMode:
    """Native kernels compute all of it."""

    weights: WeightSetting
    kv: KVKind

    @property
    def dtype(self) -> Literal["bfloat16", "float32"]:
        """Of activations and KV cache: of what is rounded nowhere, or else."""
        return "float32" if (self.weights, self.kv) == ("f32", "f32") else "bfloat16"


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchMode:
    """PyTorch computes; in bfloat16 the kernels may do attention."""

    dtype: Literal["auto", "bfloat16", "float32"]
    """`auto` is bfloat16 where the CPU has instructions for it."""
    why: str
    """Why the kernels do not."""


Mode = NativeMode | TorchMode

_DTYPES = ("auto", "bfloat16", "float32")
_ALLOWED = {
    "auto": ("auto", "w4", "w8", "bf16", "f32"),
    "bfloat16": ("auto", "w4", "w8", "bf16"),
    "float32": ("auto", "f32"),
}
"""Settings of the weights, by dtype."""
_AUTO: dict[str, WeightSetting] = {"auto": "auto", "bfloat16": "bf16", "float32": "f32"}
"""The weights that are meant where the setting leaves it open, by dtype."""
_KV: dict[WeightSetting, KVKind] = {"bf16": "bf16", "f32": "f32"}
"""What the cache holds where the setting leaves it open, by weights; of rounded ones it is rounded, too."""
_TORCH: dict[WeightSetting, Literal["auto", "bfloat16", "float32"]] = {
    "auto": "auto",
    "bf16": "bfloat16",
    "f32": "float32",
}
"""What PyTorch can do in place of the kernels, by weights."""


def choose_mode(settings: CpuSettings, dtype: str, parts: ModelParts) -> Mode:
    """Raises `ModelLoadError` if settings contradict each other, or ask for what cannot be."""
    if dtype not in _ALLOWED:
        raise ModelLoadError(f"The CPU executor cannot compute in {dtype}; use {', '.join(_DTYPES)}.")
    if settings.weights not in _ALLOWED[dtype]:
        would = ", ".join(_ALLOWED[dtype])
        raise ModelLoadError(f"cpu.weights {settings.weights} does not go with dtype {dtype}, but {would} would.")
    if dtype == "float32" and settings.kv not in ("auto", "f32"):
        raise ModelLoadError(f"cpu.kv {settings.kv} does not go with dtype float32, but auto, f32 would.")
    weights = _AUTO[dtype] if settings.weights == "auto" else settings.weights
    why = _why_not_native(settings, parts)
    if not why:
        kv = _KV.get(weights, "int8") if settings.kv == "auto" else settings.kv
        return NativeMode(weights=weights, kv=kv)
    if weights not in _TORCH:
        raise ModelLoadError(f"cpu.weights {weights} needs the native kernels: {why}.")
    if settings.kv == "f32" != weights:
        raise ModelLoadError(f"cpu.kv f32 with cpu.weights {weights} needs the native kernels: {why}.")
    return TorchMode(dtype=_TORCH[weights], why=why)


def _why_not_native(settings: CpuSettings, parts: ModelParts) -> str:
    """Empty if they can run the model."""
    if settings.kernels == "torch":
        return "cpu.kernels is torch"
    if parts.plain is None:
        return f"the layers of {parts.config.architecture} are {parts.whose}"
    try:
        kernels_name()
        check_heads(parts.config.head_dim)
    except KernelsMissing as why:
        return str(why)
    return ""
