"""Grammar masks: tokens that may not come get the logit -inf."""

import torch
import triton
import triton.language as tl

from corelm_gpu.kernels.launch import Launch

COLUMNS = 4096
"""Of one row, for one program."""


@triton.jit
def _apply_mask(logits, rows, masks, vocab_size, words, stride, COLUMNS: tl.constexpr):
    index = tl.program_id(0)
    row = tl.load(rows + index).to(tl.int64)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < vocab_size
    word = tl.load(masks + index.to(tl.int64) * words + columns // 32, mask=inside, other=-1)
    banned = ((word >> (columns % 32)) & 1) == 0
    tl.store(logits + row * stride + columns, float("-inf"), mask=inside & banned)


def apply_mask(logits: torch.Tensor, rows: torch.Tensor, masks: torch.Tensor) -> Launch:
    """Mask ``rows[i]`` of `logits` [R, vocabulary] by ``masks[i]``, int32 [words].

    Token t may come if bit t % 32 of word t / 32 is set.
    """
    vocab_size = logits.shape[1]
    return Launch(
        kernel=_apply_mask,
        grid=(len(rows), triton.cdiv(vocab_size, COLUMNS)),
        arguments={
            "logits": logits,
            "rows": rows,
            "masks": masks,
            "vocab_size": vocab_size,
            "words": masks.shape[1],
            "stride": logits.stride(0),
        },
        constants={"COLUMNS": COLUMNS},
    )


def apply_mask_reference(logits: torch.Tensor, rows: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """The masked logits."""
    tokens = torch.arange(logits.shape[1])
    allowed = (masks[:, tokens // 32] >> (tokens % 32)) & 1
    masked = logits.clone()
    masked[rows.long()] = logits[rows.long()].masked_fill(allowed == 0, -torch.inf)
    return masked
