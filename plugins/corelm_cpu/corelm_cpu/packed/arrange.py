"""Where the weights of a model go in memory."""

from collections.abc import Mapping

from corelm_torch.config import ModelConfig
from corelm_torch.weights import Encoding, plain_shapes

from corelm_cpu.packed.kinds import WeightSetting, choose_kind
from corelm_cpu.packed.layout import Layout, Matrix, Vector
from corelm_cpu.packed.native import matrix_bytes
from corelm_cpu.packed.plan import plan_matrices, vector_name

_ALIGNMENT = 64
"""Bytes; of the beginning of every matrix and vector."""
_TILE = 32
"""Outputs that lie together."""


def arrange(config: ModelConfig, encodings: Mapping[str, Encoding], setting: WeightSetting) -> Layout:
    """Choose kinds and places for a plain model whose tensors, by their names, are stored in `encodings`."""
    shapes = plain_shapes(config)
    lengths = {vector_name(name): shape[0] for name, shape in shapes.items() if name.endswith("norm.weight")}
    matrices: dict[str, Matrix] = {}
    filled = 0
    for planned in plan_matrices(config):
        stored = {encodings[f"{part.tensor}.weight"] for part in planned.parts}
        kind = choose_kind(stored, setting, eight_bits=planned.eight_bits)
        matrices[planned.name] = Matrix(kind, planned.outputs, planned.inputs, filled)
        filled += _aligned(matrix_bytes(kind, planned.outputs, planned.inputs))
        if f"{planned.parts[0].tensor}.bias" in shapes:
            lengths[f"{planned.name}.bias"] = -(-planned.outputs // _TILE) * _TILE
    vectors: dict[str, Vector] = {}
    for name, length in lengths.items():
        vectors[name] = Vector(length, filled)
        filled += _aligned(4 * length)
    return Layout(matrices, vectors, filled)


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
