"""How matrices are quantised."""

from collections.abc import Iterable
from typing import Literal

from corelm_torch.weights import Encoding

from corelm_cpu.packed.layout import Kind

WeightSetting = Literal["auto", "w4", "w8"]
"""auto takes Q4_0, Q4_1 and Q8_0 as they are and makes Q8_0 of the rest; w8 makes Q8_0 of everything; w4 makes Q4_1 of
what is not Q4_0 or Q4_1 already. Output layer and embedding are always Q8_0."""

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
_ROUNDED_TO = {"auto": Kind.Q8_0, "w4": Kind.Q4_1, "w8": Kind.Q8_0}


def choose_kind(encodings: Iterable[Encoding], setting: WeightSetting, *, eight_bits: bool) -> Kind:
    """The kind of a matrix whose parts are stored in `encodings`: all without loss, or all rounded the same way."""
    if eight_bits or setting == "w8":
        return Kind.Q8_0
    kept = {_FOUR_BITS.get(encoding) for encoding in encodings}
    if None in kept:
        return _ROUNDED_TO[setting]
    return Kind.Q4_0 if kept == {Kind.Q4_0} else Kind.Q4_1


def is_taken(encoding: Encoding, kind: Kind) -> bool:
    """Whether the kernels make `kind` of `encoding` themselves."""
    if encoding in (Encoding.Q8_0, Encoding.Q4_1):
        return encoding == kind.name
    return encoding in SOURCES
