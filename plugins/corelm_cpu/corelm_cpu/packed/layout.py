"""What packed weights are (see ``native/linear/layout.h``)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from corelm_torch.arrays import Floats

from corelm_cpu.packed.native import Bytes

LAYOUT_VERSION = 1
"""Goes up with every change to what packed weights look like, so that the cache does not give out old ones."""


class Kind(IntEnum):
    """What a matrix is stored as: quantised in groups of 32 inputs, as GGUF's types of these names, or not."""

    Q8_0 = 0
    Q4_0 = 1
    Q4_1 = 2
    BF16 = 3
    F32 = 4


@dataclass(frozen=True, slots=True)
class Matrix:
    """A packed matrix, `offset` bytes from the beginning of the memory."""

    kind: Kind
    outputs: int
    inputs: int
    offset: int


@dataclass(frozen=True, slots=True)
class Vector:
    """Floats, `offset` bytes from the beginning of the memory."""

    length: int
    offset: int


@dataclass(frozen=True, slots=True)
class Layout:
    """What is where in memory.

    Matrices are ``layers.0.qkv`` (rows of q, k, v), ``layers.0.o``, ``layers.0.gate_up`` (16 rows of gate, 16 of up, in
    turns, with zeros up to a multiple of 16 each), ``layers.0.down``, ``head``, and ``embedding`` unless the head
    serves as such. Vectors are ``layers.0.input_norm``, ``layers.0.post_norm``, ``norm``, and if the model has them
    ``layers.0.q_norm``, ``layers.0.k_norm``, and biases of matrices such as ``layers.0.qkv.bias``, in the order of the
    outputs, with zeros up to whole tiles.
    """

    matrices: Mapping[str, Matrix]
    vectors: Mapping[str, Vector]
    num_bytes: int


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """All weights of a model, in one piece of memory that lives as long as this object or its arrays."""

    data: Bytes
    layout: Layout

    @property
    def matrices(self) -> Mapping[str, Matrix]:
        """By name, see `Layout`."""
        return self.layout.matrices

    @property
    def vectors(self) -> Mapping[str, Vector]:
        """By name, see `Layout`."""
        return self.layout.vectors

    def address(self, part: Matrix | Vector) -> int:
        """Where a part lies."""
        return int(self.data.ctypes.data) + part.offset

    def floats(self, vector: Vector) -> Floats:
        """The numbers of a vector, in place."""
        return self.data[vector.offset : vector.offset + 4 * vector.length].view(np.float32)
