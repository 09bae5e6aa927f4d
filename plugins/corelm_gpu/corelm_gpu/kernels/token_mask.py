"""Grammar masks: the logits of tokens that may not come become -inf."""

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
    banned = inside & (((word >> (columns % 32)) & 1) == 0)
    logit = logits + row * stride + columns
    # What is not finite stays an error.
    sane = tl.load(logit, mask=banned, other=0.0) < float("inf")
    tl.store(logit, tl.where(sane, float("-inf"), float("nan")), mask=banned)


def apply_mask(logits: torch.Tensor, rows: torch.Tensor, masks: torch.Tensor) -> Launch:
    """Mask ``rows[i]`` of `logits` [R, vocabulary] by ``masks[i]``, int32 [words].

    Token t may come if bit t % 32 of word t / 32 is set. A logit that is NaN or inf and masked becomes NaN.
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
    tokens = torch.arange(logits.shape[1], device=logits.device)
    allowed = (masks[:, tokens // 32] >> (tokens % 32)) & 1
    masked = logits.clone()
    masked[rows.long()] += torch.where(allowed == 0, -torch.inf, 0.0)
    return masked
