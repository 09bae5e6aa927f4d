"""Settings of the CPU executor."""

from typing import Literal

from pydantic import BaseModel, Field


class CpuSettings(BaseModel):
    """Settings of the CPU executor."""

    threads: int | None = Field(
        default=None, ge=1, description="Threads to compute with; by default as many as the CPUs this process may use."
    )
    memory_fraction: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Share of the memory left after the weights that the KV cache may take, unless its size is given.",
    )
    weights: Literal["auto", "w4", "w8", "bf16", "f32"] = Field(
        default="auto",
        description=(
            "How weights are kept: auto takes GGUF's Q4_0, Q4_1 and Q8_0 as they are and rounds others to 8 bits in "
            "groups of 32, w8 and w4 round to 8 and 4 bits, bf16 and f32 are those formats."
        ),
    )
    kv: Literal["auto", "bf16", "int8", "f32"] = Field(
        default="auto",
        description=(
            "What the KV cache holds, where native kernels read it: bfloat16, float32, or 8 bits with a scale for each "
            "token and KV head, which takes little more than half the memory of bfloat16. auto is bf16 or f32 if "
            "weights are, else int8. Only f32 for both is exact."
        ),
    )
    cache_weights: bool = Field(
        default=True,
        description=(
            "Keep rounded weights that took long to make in the user's cache folder, for the next start "
            "($XDG_CACHE_HOME or ~/.cache, there corelm/cpu)."
        ),
    )
    kernels: Literal["auto", "torch"] = Field(
        default="auto",
        description="What computes: auto is the native kernels where they were built and can, torch is PyTorch alone.",
    )
