"""What runs a model: its weights, its KV cache, and the operations on them."""

from collections.abc import Mapping
from typing import Protocol

from corelm_torch.batch import Batch
from corelm_torch.outputs import StepOutputs

from corelm_cpu.blocks import BlockStore


class Runner(Protocol):
    """A loaded model."""

    @property
    def cache(self) -> BlockStore: ...

    num_blocks: int
    dtype: str
    """Of activations and KV cache, as `corelm.api.ExecutorInfo` gives it."""

    @property
    def details(self) -> Mapping[str, str]:
        """For the start-up banner."""

    def compute(self, batch: Batch) -> StepOutputs:
        """Compute a step, valid until the next one."""

    def close(self) -> None:
        """Free what it holds. It is not used afterwards."""
