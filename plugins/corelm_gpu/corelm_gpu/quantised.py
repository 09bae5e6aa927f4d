"""Weights as GGUF files have them, on the device: unpacked there into one layout, without changing a value.

A weight is ``scale * (q - zero) + offset``, with a scale and perhaps an offset for each group of 32 or 16 inputs.
The blocks are described in https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from corelm_torch.weights import Encoding, Weight

FULL = 256
"""Weights of a block of the K encodings; the others have 32."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QuantisedWeight:
    """A matrix [outputs, inputs] in groups along the inputs."""

    weights: torch.Tensor
    """int8 [outputs, inputs], or uint8 [outputs, inputs / 2]: byte j of a group has its weights j (the low four bits)
    and j + group / 2."""
    scales: torch.Tensor
    """[outputs, inputs / group], float16 where that is exact, else float32."""
    offsets: torch.Tensor | None
    """As `scales`."""
    zero: int
    group: int
    shape: tuple[int, int]

    @property
    def nibbles(self) -> bool:
        """Whether `weights` has two in a byte."""
        return self.weights.dtype == torch.uint8


@dataclass(frozen=True, kw_only=True, slots=True)
class _Unpacked:
    """Parts of blocks [B, ...]: `weights` [B, bytes], `scales` and `offsets` [B, groups]."""

    weights: torch.Tensor
    scales: torch.Tensor
    offsets: torch.Tensor | None = None
    zero: int = 0


def keep(weight: Weight, device: torch.device) -> QuantisedWeight | None:
    """Unpack `weight` on `device`; None if it has no blocks."""
    found = _UNPACK.get(weight.encoding)
    if found is None:
        return None
    size, unpack = found
    outputs, inputs = weight.shape
    blocks = torch.from_numpy(weight.data).to(device).view(-1, weight.data.shape[1] * size // inputs)
    unpacked = unpack(blocks)
    groups = unpacked.scales.shape[1]

    def rows(values: torch.Tensor) -> torch.Tensor:
        return values.reshape(outputs, -1).contiguous()

    return QuantisedWeight(
        weights=rows(unpacked.weights),
        scales=rows(_narrow(unpacked.scales)),
        offsets=None if unpacked.offsets is None else rows(_narrow(unpacked.offsets)),
        zero=unpacked.zero,
        group=size // groups,
        shape=(outputs, inputs),
    )


def _narrow(values: torch.Tensor) -> torch.Tensor:
    """In float16 if it holds all of them exactly."""
    narrow = values.half()
    return narrow if torch.equal(narrow.to(values.dtype), values) else values


def _halves(blocks: torch.Tensor, begin: int) -> torch.Tensor:
    """The float16 at byte `begin` of each block, [B, 1]."""
    return blocks[:, begin : begin + 2].contiguous().view(torch.float16)


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """Of bytes [B, groups, bytes] their low four bits, then their high ones: [B, groups, 2 * bytes]."""
    return torch.cat([packed & 15, packed >> 4], dim=-1)


def _pairs(values: torch.Tensor) -> torch.Tensor:
    """Weights below 16, [B, groups, 32], two in a byte: [B, groups * 16]."""
    low, high = values.chunk(2, dim=-1)
    return (low | high << 4).flatten(1)


def _bits(packed: torch.Tensor, width: int) -> torch.Tensor:
    """The 8 / `width` parts of each byte, lowest first: from [B, bytes] to [B, parts, bytes]."""
    shifts = torch.arange(0, 8, width, dtype=torch.uint8, device=packed.device)
    return packed.unsqueeze(1) >> shifts.unsqueeze(1) & ((1 << width) - 1)


def _bytes(values: torch.Tensor, zero: int) -> torch.Tensor:
    """Weights below 64 less `zero`, as int8 [B, weights]."""
    return (values.to(torch.int8) - zero).flatten(1)


def _q4_0(blocks: torch.Tensor) -> _Unpacked:
    return _Unpacked(weights=blocks[:, 2:], scales=_halves(blocks, 0), zero=8)


def _q4_1(blocks: torch.Tensor) -> _Unpacked:
    return _Unpacked(weights=blocks[:, 4:], scales=_halves(blocks, 0), offsets=_halves(blocks, 2))


def _five_bits(blocks: torch.Tensor) -> torch.Tensor:
    """The weights of blocks that end in 4 bytes of highest bits, in their order, and 16 of nibbles."""
    highest = _bits(blocks[:, -20:-16], 1).transpose(1, 2).flatten(1)
    return _nibbles(blocks[:, -16:]) | highest << 4


def _q5_0(blocks: torch.Tensor) -> _Unpacked:
    return _Unpacked(weights=_bytes(_five_bits(blocks), 16), scales=_halves(blocks, 0))


def _q5_1(blocks: torch.Tensor) -> _Unpacked:
    return _Unpacked(weights=_bytes(_five_bits(blocks), 0), scales=_halves(blocks, 0), offsets=_halves(blocks, 2))


def _q8_0(blocks: torch.Tensor) -> _Unpacked:
    return _Unpacked(weights=blocks[:, 2:].view(torch.int8), scales=_halves(blocks, 0))


def _k_scales(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales and offsets of the 8 groups of Q4_K and Q5_K: six bits each in bytes 4 to 15, times two float16."""
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat([first & 63, third & 15 | first >> 2 & 48], dim=1)
    offsets = torch.cat([second & 63, third >> 4 | second >> 2 & 48], dim=1)
    return _halves(blocks, 0).float() * scales, -_halves(blocks, 2).float() * offsets


def _q4_k(blocks: torch.Tensor) -> _Unpacked:
    scales, offsets = _k_scales(blocks)
    values = _nibbles(blocks[:, 16:].view(-1, 4, 32)).view(-1, 8, 32)
    return _Unpacked(weights=_pairs(values), scales=scales, offsets=offsets)


def _q5_k(blocks: torch.Tensor) -> _Unpacked:
    scales, offsets = _k_scales(blocks)
    values = _nibbles(blocks[:, 48:].view(-1, 4, 32)).view(-1, 8, 32) | _bits(blocks[:, 16:48], 1) << 4
    return _Unpacked(weights=_bytes(values, 0), scales=scales, offsets=offsets)


def _q6_k(blocks: torch.Tensor) -> _Unpacked:
    low = _nibbles(blocks[:, :128].view(-1, 2, 64)).view(-1, 2, 4, 32)
    high = _bits(blocks[:, 128:192].reshape(-1, 32), 2).view(-1, 2, 4, 32)
    scales = _halves(blocks, 208).float() * blocks[:, 192:208].view(torch.int8)
    return _Unpacked(weights=_bytes((low | high << 4).flatten(1), 32), scales=scales)


_UNPACK: dict[Encoding, tuple[int, Callable[[torch.Tensor], _Unpacked]]] = {
    Encoding.Q4_0: (32, _q4_0),
    Encoding.Q4_1: (32, _q4_1),
    Encoding.Q5_0: (32, _q5_0),
    Encoding.Q5_1: (32, _q5_1),
    Encoding.Q8_0: (32, _q8_0),
    Encoding.Q4_K: (FULL, _q4_k),
    Encoding.Q5_K: (FULL, _q5_k),
    Encoding.Q6_K: (FULL, _q6_k),
}
"""Weights of a block, and what takes blocks apart."""
