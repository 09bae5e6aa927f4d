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
    kernels: Literal["auto", "torch"] = Field(
        default="auto",
        description="What computes in bfloat16: auto is the native kernels where they were built, torch does without.",
    )
