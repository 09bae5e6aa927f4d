"""What matrices are stored as."""

from collections.abc import Iterable
from typing import Literal

from corelm_torch.weights import Encoding

from corelm_cpu.packed.layout import Kind

WeightSetting = Literal["auto", "w4", "w8", "bf16", "f32"]
"""auto takes Q4_0, Q4_1 and Q8_0 as they are and makes Q8_0 of the rest; w8 makes Q8_0 of everything; w4 makes Q4_1 of
what is not Q4_0 or Q4_1 already. With these, output layer and embedding are always Q8_0. bf16 makes BF16 and f32 makes
F32 of everything."""

SOURCES = {
    Encoding.F32: 0,
    Encoding.F16: 1,
    Encoding.BF16: 2,
    Encoding.Q8_0: 3,
    Encoding.Q4_0: 4,
    Encoding.Q4_1: 5,
}
"""What the kernels take, by their numbers. Others are made F32 before."""

_FOUR_BITS = {Encoding.Q4_0: Kind.Q4_0, Encoding.Q4_1: Kind.Q4_1}
_MADE: dict[WeightSetting, Kind] = {
    "auto": Kind.Q8_0,
    "w4": Kind.Q4_1,
    "w8": Kind.Q8_0,
    "bf16": Kind.BF16,
    "f32": Kind.F32,
}
_KEPT: tuple[WeightSetting, ...] = ("auto", "w4")
"""Those that leave 4 bits as they are."""


def choose_kind(encodings: Iterable[Encoding], setting: WeightSetting, *, eight_bits: bool) -> Kind:
    """The kind of a matrix whose parts are stored in `encodings`: all without loss, or all rounded the same way."""
    if setting not in _KEPT:
        return _MADE[setting]
    if eight_bits:
        return Kind.Q8_0
    kept = {_FOUR_BITS.get(encoding) for encoding in encodings}
    if None in kept:
        return _MADE[setting]
    return Kind.Q4_0 if kept == {Kind.Q4_0} else Kind.Q4_1


def is_taken(encoding: Encoding, kind: Kind) -> bool:
    """Whether the kernels make `kind` of `encoding` themselves."""
    if encoding in (Encoding.Q8_0, Encoding.Q4_1):
        return encoding == kind.name
    if encoding is Encoding.Q4_0:
        return kind not in (Kind.BF16, Kind.F32)
    return encoding in SOURCES
