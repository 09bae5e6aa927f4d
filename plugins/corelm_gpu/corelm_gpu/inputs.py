"""What a step reads of the device's memory."""

from dataclasses import dataclass

import torch

from corelm_gpu.attention_plan import AttentionPlan


@dataclass(frozen=True, slots=True)
class StepInputs:
    """A step's tokens, all int32 [M], and its attention."""

    token_ids: torch.Tensor
    """-1 for one that the step before samples."""
    table_rows: torch.Tensor
    """The row of each token's sequence in the sequence table."""
    positions: torch.Tensor
    slots: torch.Tensor
    """-1 for tokens that only fill a captured batch."""
    plan: AttentionPlan
