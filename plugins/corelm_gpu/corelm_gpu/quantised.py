"""Weights as GGUF files have them, on the device: unpacked there into one layout, without changing a value.

A weight is ``scale * (q - zero) + offset``, with a scale and perhaps an offset for each group of 32 or 16 inputs. In
the K encodings these are small whole numbers, which have factors for each 256 inputs. The blocks are described in
https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h.
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
    """[outputs, inputs / group], float16, or int8 with factors."""
    offsets: torch.Tensor | None = None
    """As `scales`."""
    scale_factors: torch.Tensor | None = None
    """float16 [outputs, inputs / 256]: what scales are multiplied with."""
    offset_factors: torch.Tensor | None = None
    """The same of offsets."""
    zero: int = 0
    group: int
    shape: tuple[int, int]

    @property
    def nibbles(self) -> bool:
        """Whether `weights` has two in a byte."""
        return self.weights.dtype == torch.uint8

    @property
    def groups_per_factor(self) -> int:
        """0 without factors."""
        return 0 if self.scale_factors is None else FULL // self.group


_Parts = dict[str, torch.Tensor]
"""The tensors of a `QuantisedWeight`, of blocks: [B, ...]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Unpacking:
    """How blocks of an encoding are taken apart."""

    unpack: Callable[[torch.Tensor], _Parts]
    size: int = 32
    """Weights of a block."""
    group: int = 32
    zero: int = 0


def keep(weight: Weight, device: torch.device) -> QuantisedWeight | None:
    """Unpack `weight` on `device`; None if it has no blocks."""
    unpacking = _UNPACKING.get(weight.encoding)
    if unpacking is None:
        return None
    outputs, inputs = weight.shape
    blocks = torch.from_numpy(weight.data).to(device).view(-1, weight.data.shape[1] * unpacking.size // inputs)
    parts = {name: part.reshape(outputs, -1).contiguous() for name, part in unpacking.unpack(blocks).items()}
    return QuantisedWeight(**parts, zero=unpacking.zero, group=unpacking.group, shape=(outputs, inputs))


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


def _q4_0(blocks: torch.Tensor) -> _Parts:
    return {"weights": blocks[:, 2:], "scales": _halves(blocks, 0)}


def _q4_1(blocks: torch.Tensor) -> _Parts:
    return {"weights": blocks[:, 4:], "scales": _halves(blocks, 0), "offsets": _halves(blocks, 2)}


def _five_bits(blocks: torch.Tensor) -> torch.Tensor:
    """The weights of blocks that end in 4 bytes of highest bits, in their order, and 16 of nibbles."""
    highest = _bits(blocks[:, -20:-16], 1).transpose(1, 2).flatten(1)
    return _nibbles(blocks[:, -16:]) | highest << 4


def _q5_0(blocks: torch.Tensor) -> _Parts:
    return {"weights": _bytes(_five_bits(blocks), 16), "scales": _halves(blocks, 0)}


def _q5_1(blocks: torch.Tensor) -> _Parts:
    return {"weights": _bytes(_five_bits(blocks), 0), "scales": _halves(blocks, 0), "offsets": _halves(blocks, 2)}


def _q8_0(blocks: torch.Tensor) -> _Parts:
    return {"weights": blocks[:, 2:].view(torch.int8), "scales": _halves(blocks, 0)}


def _k_scales(blocks: torch.Tensor) -> _Parts:
    """Scales and offsets of the 8 groups of Q4_K and Q5_K: six bits each in bytes 4 to 15, times two float16."""
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    return {
        "scales": torch.cat([first & 63, third & 15 | first >> 2 & 48], dim=1).view(torch.int8),
        "offsets": torch.cat([second & 63, third >> 4 | second >> 2 & 48], dim=1).view(torch.int8),
        "scale_factors": _halves(blocks, 0),
        "offset_factors": -_halves(blocks, 2),
    }


def _q4_k(blocks: torch.Tensor) -> _Parts:
    values = _nibbles(blocks[:, 16:].view(-1, 4, 32)).view(-1, 8, 32)
    return {"weights": _pairs(values), **_k_scales(blocks)}


def _q5_k(blocks: torch.Tensor) -> _Parts:
    values = _nibbles(blocks[:, 48:].view(-1, 4, 32)).view(-1, 8, 32) | _bits(blocks[:, 16:48], 1) << 4
    return {"weights": _bytes(values, 0), **_k_scales(blocks)}


def _q6_k(blocks: torch.Tensor) -> _Parts:
    low = _nibbles(blocks[:, :128].view(-1, 2, 64)).view(-1, 2, 4, 32)
    high = _bits(blocks[:, 128:192].reshape(-1, 32), 2).view(-1, 2, 4, 32)
    return {
        "weights": _bytes((low | high << 4).flatten(1), 32),
        "scales": blocks[:, 192:208].view(torch.int8),
        "scale_factors": _halves(blocks, 208),
    }


_UNPACKING = {
    Encoding.Q4_0: _Unpacking(unpack=_q4_0, zero=8),
    Encoding.Q4_1: _Unpacking(unpack=_q4_1),
    Encoding.Q5_0: _Unpacking(unpack=_q5_0),
    Encoding.Q5_1: _Unpacking(unpack=_q5_1),
    Encoding.Q8_0: _Unpacking(unpack=_q8_0),
    Encoding.Q4_K: _Unpacking(unpack=_q4_k, size=FULL),
    Encoding.Q5_K: _Unpacking(unpack=_q5_k, size=FULL),
    Encoding.Q6_K: _Unpacking(unpack=_q6_k, size=FULL, group=16),
}
