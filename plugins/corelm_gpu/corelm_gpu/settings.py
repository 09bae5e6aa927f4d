"""Settings of the GPU executor."""

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
