"""The reference of both attention kernels."""

import torch


def attention_reference(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    tables: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    offsets: torch.Tensor,
    *,
    window: int | None,
    scale: float | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """Causal attention [M, heads, head_dim] of slices over their paged contexts, in float64.

    The arguments are those of `prefill_attention`; rows of no slice are 0.
    """
    output = torch.zeros(q.shape, dtype=torch.float64)
    group = q.shape[1] // keys.shape[1]
    for piece, (start, length, offset) in enumerate(
        zip(starts.tolist(), lengths.tolist(), offsets.tolist(), strict=True)
    ):
        end, block_size = start + length, keys.shape[2]
        blocks = tables[piece, : -(-end // block_size)].long()
        # [heads, positions, head_dim]
        key, value = (
            cache.double()[blocks].transpose(0, 1).flatten(1, 2)[:, :end].repeat_interleave(group, 0)
            for cache in (keys, values)
        )
        rows = slice(offset, offset + length)
        scores = (
            q[rows].double().transpose(0, 1) @ key.transpose(1, 2) * (q.shape[2] ** -0.5 if scale is None else scale)
        )
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        distance = torch.arange(start, end).unsqueeze(1) - torch.arange(end)
        hidden = distance < 0 if window is None else (distance < 0) | (distance >= window)
        scores.masked_fill_(hidden, -torch.inf)
        output[rows] = (scores.softmax(-1) @ value).transpose(0, 1)
    return output
