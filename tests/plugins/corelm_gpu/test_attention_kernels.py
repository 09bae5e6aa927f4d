from dataclasses import dataclass, replace

import pytest
import torch
from corelm_gpu.kernels.attention_reference import attention_reference
from corelm_gpu.kernels.decode_attention import decode_attention
from corelm_gpu.kernels.prefill_attention import prefill_attention, tile_rows
from gpu_kernels import DEVICE, DTYPES, assert_close, ints, poisoned, random

F32, F16, *OTHERS = DTYPES


@dataclass(frozen=True)
class Case:
    shape: tuple[int, int, int]
    """Heads, KV heads and head_dim."""
    block_size: int
    dtype: torch.dtype
    window: int | None = None
    softcap: float | None = None
    scale: float | None = None
    cache: torch.dtype | None = None

    @property
    def options(self):
        return {"window": self.window, "softcap": self.softcap, "scale": self.scale}


FP8 = torch.float8_e4m3fn
CASES = [
    Case((4, 2, 64), 16, F32),
    Case((8, 1, 80), 7, F32),
    Case((8, 1, 80), 16, F16, window=5),
    Case((3, 3, 96), 16, F32, window=70, softcap=2.0),
    Case((7, 1, 64), 32, F32, scale=0.7),
    Case((6, 2, 128), 7, F16, window=70),
    Case((4, 4, 128), 32, F16, softcap=1.5, scale=0.3),
    Case((4, 1, 192), 16, F16, cache=FP8),
    Case((2, 1, 256), 16, F32, window=5, softcap=5.0, cache=FP8),
]
"""8-way and odd groups among them."""
CASES += [replace(case, dtype=other) for other in OTHERS for case in CASES if case.dtype == F16]
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

    def reference(self, case):
        arguments = (self.q, self.keys, self.values, self.tables)
        return attention_reference(
            *(each.cpu() for each in arguments),
            *map(torch.tensor, (self.starts, self.lengths, self.offsets)),
            **case.options,
        )


def paged(case):
    heads, kv_heads, head_dim = case.shape
    starts, lengths = map(list, zip(*SLICES, strict=True))
    needed = [-(-(start + length) // case.block_size) for start, length in SLICES]
    order = torch.randperm(sum(needed) + 3).tolist()
    tables = [[order.pop() for _ in range(count)] + [0] * (max(needed) - count) for count in needed]
    cache = case.cache or case.dtype
    shape = (sum(needed) + 3, kv_heads, case.block_size, head_dim)
    keys, values = (poisoned(*shape, dtype=cache) for _ in range(2))
    for table, (start, length) in zip(tables, SLICES, strict=True):
        for position in range(start + length):
            block, place = table[position // case.block_size], position % case.block_size
            for target in (keys, values):
                target[block, :, place] = random(kv_heads, head_dim, dtype=cache)
    q = random(sum(lengths), heads, head_dim, dtype=case.dtype)
    return Paged(q, keys, values, ints(tables), starts, lengths)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_prefill(case):
    data = paged(case)
    heads, kv_heads, head_dim = case.shape
    step = tile_rows(head_dim, case.dtype) // (heads // kv_heads)
    tiles = [(piece, first) for piece, length in enumerate(data.lengths) for first in range(0, length, step)]
    output = poisoned(*data.q.shape, dtype=case.dtype)
    prefill_attention(
        data.q,
        data.keys,
        data.values,
        data.tables,
        *map(ints, map(list, zip(*tiles, strict=True))),
        ints(data.starts),
        ints(data.lengths),
        ints(data.offsets),
        output,
        **case.options,
    ).run()
    assert_close(output, data.reference(case))


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("splits", [1, 4])
def test_decode(case, splits):
    data = paged(case)
    chosen = [piece for piece, length in enumerate(data.lengths) if length == 1]
    rows = [data.offsets[piece] for piece in chosen]
    output = poisoned(*data.q.shape, dtype=case.dtype)
    for launch in decode_attention(
        data.q,
        data.keys,
        data.values,
        data.tables[chosen],
        ints([data.ends[piece] for piece in chosen]),
        ints(rows),
        output,
        **case.options,
        splits=splits,
    ):
        launch.run()
    assert_close(output, data.reference(case), rows=torch.tensor(rows))
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
