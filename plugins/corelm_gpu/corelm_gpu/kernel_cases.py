"""Every kernel as models use it, on tensors without memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch

from corelm_gpu.kernels.copy_blocks import copy_blocks
from corelm_gpu.kernels.decode_attention import decode_attention
from corelm_gpu.kernels.dequantise import dequantise
from corelm_gpu.kernels.launch import Launch
from corelm_gpu.kernels.norm import add_norm
from corelm_gpu.kernels.penalise import penalise
from corelm_gpu.kernels.prefill_attention import prefill_attention
from corelm_gpu.kernels.quantised_linear import quantised_linear
from corelm_gpu.kernels.rotate_write import rotate_write
from corelm_gpu.kernels.sample import sample
from corelm_gpu.kernels.silu import silu_mul
from corelm_gpu.kernels.token_mask import apply_mask
from corelm_gpu.kernels.token_scores import score_tokens
from corelm_gpu.quantised import QuantisedWeight

HEAD_DIMS = (128, 64, 256, 96, 192, 80)
GROUPS = (4, 1, 8, 7)
"""Query heads to a KV head."""
BLOCK_SIZES = (16, 32, 64)
DTYPES = (torch.bfloat16, torch.float16)
VARIANTS = ("", "window", "softcap", "fp8", "window, softcap, fp8")
SPLITS = (8, 1)

Cases = Iterator[tuple[str, Launch]]
"""Launches with what is special in them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Heads:
    """What attention kernels are compiled for."""

    head_dim: int
    group: int
    block_size: int
    dtype: torch.dtype
    variant: str
    splits: tuple[int, ...]

    @property
    def name(self) -> str:
        """Without what is usual."""
        kind = str(self.dtype).removeprefix("torch.")
        name = f"head_dim {self.head_dim}, {self.group} to 1, blocks of {self.block_size}, {kind}"
        return f"{name}, {self.variant}" if self.variant else name


def cases(*, full: bool) -> Cases:
    """All kernels: attention with each size and variant once, or in `full` with all of them together."""
    for heads in _all_heads() if full else _some_heads():
        yield from _attention(heads)
    yield from _quantised()
    yield from _others()


def tensor(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """A tensor without memory."""
    return torch.empty(*shape, dtype=dtype, device="meta")


def ints(*shape: int) -> torch.Tensor:
    """Indices without memory."""
    return tensor(*shape, dtype=torch.int32)


def floats(*shape: int) -> torch.Tensor:
    """Numbers in float32 without memory."""
    return tensor(*shape, dtype=torch.float32)


def _all_heads() -> Iterator[Heads]:
    for number, (head_dim, group, variant) in enumerate(product(HEAD_DIMS, GROUPS, VARIANTS)):
        yield _heads(number, head_dim, group, variant, SPLITS)


def _some_heads() -> Iterator[Heads]:
    for number, head_dim in enumerate(HEAD_DIMS):
        splits = SPLITS[number % 2 : number % 2 + 1]
        yield _heads(number, head_dim, GROUPS[number % len(GROUPS)], VARIANTS[number % len(VARIANTS)], splits)


def _heads(number: int, head_dim: int, group: int, variant: str, splits: tuple[int, ...]) -> Heads:
    return Heads(
        head_dim=head_dim,
        group=group,
        block_size=BLOCK_SIZES[number % len(BLOCK_SIZES)],
        dtype=DTYPES[number // len(BLOCK_SIZES) % len(DTYPES)],
        variant=variant,
        splits=splits,
    )


def _attention(heads: Heads) -> Cases:
    """Writing of the cache, decoding and prompts."""
    kv_heads, head_dim = 8, heads.head_dim
    num_heads = kv_heads * heads.group
    q, output = (tensor(8, num_heads, head_dim, dtype=heads.dtype) for _ in range(2))
    cache_dtype = torch.float8_e4m3fn if "fp8" in heads.variant else heads.dtype
    cache = tensor(64, kv_heads, heads.block_size, head_dim, dtype=cache_dtype)
    k, cos = q[:, :kv_heads], floats(8192, head_dim // 2)
    yield heads.name, rotate_write(q, k, k, cos, cos, ints(8), ints(8), output, cache, cache)
    window = 4096 if "window" in heads.variant else None
    softcap = 50.0 if "softcap" in heads.variant else None
    tables = ints(8, 512)
    for splits in heads.splits:
        for launch in decode_attention(
            q, cache, cache, tables, ints(8), ints(8), output, window=window, softcap=softcap, splits=splits
        ):
            yield f"{heads.name}, splits {splits}", launch
    indices = (ints(9), ints(9), ints(3), ints(3), ints(3))
    yield heads.name, prefill_attention(q, cache, cache, tables, *indices, output, window=window, softcap=softcap)


def _quantised() -> Cases:
    """One of each layout."""
    layouts = {
        "Q4_0": _weight(nibbles=True, zero=8),
        "Q4_1": _weight(nibbles=True, offsets=True),
        "Q4_K": _weight(nibbles=True, offsets=True, factors=True),
        "Q5_K": _weight(offsets=True, factors=True),
        "Q8_0": _weight(),
        "Q6_K": _weight(group=16, factors=True),
    }
    for name, weight in layouts.items():
        for rows in (8, 64) if name in ("Q4_K", "Q6_K") else (8,):
            x = tensor(rows, 4096)
            yield f"{name}, {rows} rows", quantised_linear(x, weight, None, x)
        yield name, dequantise(weight, tensor(4096, 4096))


def _weight(
    *, nibbles: bool = False, group: int = 32, offsets: bool = False, factors: bool = False, zero: int = 0
) -> QuantisedWeight:
    """A matrix of 4096 by 4096."""
    weights = tensor(4096, 2048, dtype=torch.uint8) if nibbles else tensor(4096, 4096, dtype=torch.int8)
    scales = tensor(4096, 4096 // group, dtype=torch.int8 if factors else torch.float16)
    of_many = tensor(4096, 16, dtype=torch.float16) if factors else None
    return QuantisedWeight(
        weights=weights,
        scales=scales,
        offsets=scales if offsets else None,
        scale_factors=of_many,
        offset_factors=of_many if offsets else None,
        zero=zero,
        group=group,
        shape=(4096, 4096),
    )


def _others() -> Cases:
    for width in (4096, 16384):
        x = tensor(8, width)
        yield f"width {width}", add_norm(x, x, tensor(width), x, 1e-5)
    yield "width 14336", silu_mul(tensor(8, 14336), tensor(8, 14336), tensor(8, 14336))
    yield "", apply_mask(floats(8, 128256), ints(4), ints(4, 4008))
    yield "", copy_blocks(ints(64, 64, 4096), ints(64, 64, 4096), ints(4, 2))
    yield "", sample(floats(8, 128256), ints(8, 5), tensor(2, 8, dtype=torch.int64))
    yield "", score_tokens(floats(8, 128256), tensor(8, dtype=torch.int64), ints(8), ints(8, 44))
    yield "", penalise(floats(8, 128256), ints(4), ints(900), floats(900), floats(900), floats(900))
