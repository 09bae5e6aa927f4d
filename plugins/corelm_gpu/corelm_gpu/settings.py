"""Settings of the GPU executor."""

from typing import Literal

from pydantic import BaseModel, Field


class GpuSettings(BaseModel):
    """Settings of the GPU executor."""

    device: int = Field(default=0, ge=0, description="Number of the device, among those that the process may see.")
    memory_fraction: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description=(
            "Share of the device's memory that weights, a step and the KV cache may take together, unless the size of "
            "the cache is given."
        ),
    )
    kv: Literal["auto", "fp8"] = Field(
        default="auto",
        description=(
            "Type of the KV cache: that of activations, or 8 bits a number (float8_e4m3fn), which holds twice as many "
            "tokens. It changes attention's outputs by 4 to 6 %, and costs the demo model 1 % of perplexity. CUDA "
            "devices from sm_89 on."
        ),
    )
    weights: Literal["auto", "plain"] = Field(
        default="auto",
        description="Whether to keep quantised weights of GGUF files as they are, or as numbers of the model's type.",
    )
    graphs: bool = Field(
        default=True,
        description=(
            "Capture steps of one token a sequence as CUDA graphs when the server starts. Without, it starts faster, "
            "and small steps take as long as it takes to launch their kernels."
        ),
    )
