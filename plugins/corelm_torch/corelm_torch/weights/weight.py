"""One tensor of a checkpoint, as it is stored."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize


class Encoding(StrEnum):
    """How numbers are stored: one by one, or in blocks of ggml along the last dimension.

    The blocks are described in https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h.
    """

    F64 = "F64"
    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"
    Q4_0 = "Q4_0"
    Q4_1 = "Q4_1"
    Q5_0 = "Q5_0"
    Q5_1 = "Q5_1"
    Q8_0 = "Q8_0"
    Q4_K = "Q4_K"
    Q5_K = "Q5_K"
    Q6_K = "Q6_K"


PLAIN: dict[Encoding, np.dtype[Any]] = {
    Encoding.F64: np.dtype("<f8"),
    Encoding.F32: np.dtype("<f4"),
    Encoding.F16: np.dtype("<f2"),
    Encoding.BF16: np.dtype("<u2"),
}
"""Those without blocks. NumPy has no bfloat16: its bits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Weight:
    """A named tensor, in the names and layout of Hugging Face checkpoints."""

    name: str
    """Such as ``model.layers.0.self_attn.q_proj.weight``."""
    shape: tuple[int, ...]
    encoding: Encoding
    data: npt.NDArray[np.uint8]
    """[shape[0], bytes of each of its entries], over whose end no block reaches; [1, bytes] for a scalar.

    May lie in a file mapping: never write to it.
    """
    file: str
    """The file it came from, for messages."""

    def values(self) -> npt.NDArray[np.float32]:
        """The numbers, in `shape`; may share memory with `data`. What is beyond float32 becomes infinite."""
        values: npt.NDArray[np.float32]
        if self.encoding not in PLAIN:
            values = dequantize(self.data, GGMLQuantizationType[self.encoding])
        elif self.encoding is Encoding.BF16:
            values = (self.data.view(PLAIN[self.encoding]).astype(np.uint32) << 16).view(np.float32)
        else:
            with np.errstate(over="ignore"):
                values = self.data.view(PLAIN[self.encoding]).astype(np.float32, copy=False)
        return values.reshape(self.shape)
