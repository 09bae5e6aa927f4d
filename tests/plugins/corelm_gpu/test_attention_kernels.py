from dataclasses import dataclass

import pytest
import torch
from corelm_gpu.kernels.attention_reference import attention_reference
from corelm_gpu.kernels.decode_attention import decode_attention
from corelm_gpu.kernels.prefill_attention import prefill_attention, tile_rows
from gpu_kernels import DEVICE, DTYPES, assert_close, ints, poisoned, random

F32, F16 = DTYPES
CASES = [
    ((4, 2, 64), 16, None, F32),
    ((8, 1, 80), 7, None, F32),
    ((8, 1, 80), 16, 5, F16),
    ((3, 3, 96), 16, 70, F32),
    ((6, 2, 128), 7, 70, F16),
    ((6, 2, 128), 32, None, F16),
    ((2, 1, 256), 16, 5, F32),
]
"""Heads, KV heads and head_dim, 8-way and odd groups among them; block size, window and dtype."""
SLICES = [(0, 1), (5, 7), (63, 1), (130, 3), (16, 40), (0, 17), (15, 1), (16, 1)]
"""Start and length of each: one token, a whole block, both sides of a block's border, chunks of prompts."""


@dataclass
class Paged:
    """Slices with contexts in shuffled blocks; what no sequence wrote is NaN."""

    q: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    tables: torch.Tensor
    starts: list[int]
    lengths: list[int]

    @property
    def ends(self):
        return [start + length for start, length in zip(self.starts, self.lengths, strict=True)]

    @property
    def offsets(self):
        return [sum(self.lengths[:piece]) for piece in range(len(self.lengths))]

    def reference(self, window):
        arguments = (self.q, self.keys, self.values, self.tables)
        return attention_reference(
            *(each.cpu() for each in arguments),
            *map(torch.tensor, (self.starts, self.lengths, self.offsets)),
            window=window,
        )


def paged(heads, kv_heads, head_dim, block_size, dtype):
    starts, lengths = map(list, zip(*SLICES, strict=True))
    needed = [-(-(start + length) // block_size) for start, length in SLICES]
    order = torch.randperm(sum(needed) + 3).tolist()
    tables = [[order.pop() for _ in range(count)] + [0] * (max(needed) - count) for count in needed]
    shape = (sum(needed) + 3, kv_heads, block_size, head_dim)
    keys, values = (poisoned(*shape, dtype=dtype) for _ in range(2))
    for table, (start, length) in zip(tables, SLICES, strict=True):
        for position in range(start + length):
            for cache in (keys, values):
                cache[table[position // block_size], :, position % block_size] = random(kv_heads, head_dim, dtype=dtype)
    q = random(sum(lengths), heads, head_dim, dtype=dtype)
    return Paged(q, keys, values, ints(tables), starts, lengths)


@pytest.mark.parametrize(("shape", "block_size", "window", "dtype"), CASES)
def test_prefill(shape, block_size, window, dtype):
    case = paged(*shape, block_size, dtype)
    heads, kv_heads, head_dim = shape
    step = tile_rows(head_dim) // (heads // kv_heads)
    tiles = [(piece, first) for piece, length in enumerate(case.lengths) for first in range(0, length, step)]
    output = poisoned(*case.q.shape, dtype=dtype)
    prefill_attention(
        case.q,
        case.keys,
        case.values,
        case.tables,
        *map(ints, map(list, zip(*tiles, strict=True))),
        ints(case.starts),
        ints(case.lengths),
        ints(case.offsets),
        output,
        window=window,
    ).run()
    assert_close(output, case.reference(window))


@pytest.mark.parametrize(("shape", "block_size", "window", "dtype"), CASES)
@pytest.mark.parametrize("splits", [1, 4])
def test_decode(shape, block_size, window, dtype, splits):
    case = paged(*shape, block_size, dtype)
    chosen = [piece for piece, length in enumerate(case.lengths) if length == 1]
    rows = [case.offsets[piece] for piece in chosen]
    output = poisoned(*case.q.shape, dtype=dtype)
    for launch in decode_attention(
        case.q,
        case.keys,
        case.values,
        case.tables[chosen],
        ints([case.ends[piece] for piece in chosen]),
        ints(rows),
        output,
        window=window,
        splits=splits,
    ):
        launch.run()
    assert_close(output, case.reference(window), rows=torch.tensor(rows))
    others = [row for row in range(len(output)) if row not in rows]
    assert output[others].isnan().all(), "rows of other slices are left alone"


@pytest.mark.parametrize("splits", [1, 4])
def test_sequences_that_only_fill_a_batch_give_zeros(splits):
    q = random(2, 4, 64, dtype=torch.float32)
    keys = poisoned(1, 2, 16, 64, dtype=torch.float32)
    output = poisoned(2, 4, 64, dtype=torch.float32)
    tables = torch.zeros(2, 1, dtype=torch.int32, device=DEVICE)
    for launch in decode_attention(
        q, keys, keys, tables, ints([0, 0]), ints([0, 1]), output, window=None, splits=splits
    ):
        launch.run()
    assert not output.any()
