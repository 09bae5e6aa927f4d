"""Random weights in ggml's blocks."""

import numpy as np
from corelm_torch.weights import Encoding, Weight
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

SCALES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
"""The bytes of a block at which a float16 begins; all others may be anything."""
SPREADS = {
    "Q4_0": 8,
    "Q4_1": 8,
    "Q5_0": 16,
    "Q5_1": 16,
    "Q8_0": 128,
    "Q4_K": 16 * 32,
    "Q5_K": 32 * 32,
    "Q6_K": 32 * 128,
}
"""By how much a block's scale is multiplied at most, or half of that."""


def random_blocks(encoding: str, outputs: int, inputs: int, *, spread: float = 1.0) -> np.ndarray:
    """Bytes [outputs, bytes of a row] of weights of about -`spread` to `spread`."""
    generator = np.random.default_rng()
    size, num_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[encoding]]
    blocks = generator.integers(0, 256, (outputs * inputs // size, num_bytes), dtype=np.uint8)
    for place in SCALES[encoding]:
        scales = generator.uniform(0.5, 1.0, (len(blocks), 1)) * spread / SPREADS[encoding]
        blocks[:, place : place + 2] = scales.astype(np.float16).view(np.uint8)
    return blocks.reshape(outputs, -1)


def random_weight(encoding: str, outputs: int, inputs: int) -> Weight:
    data = random_blocks(encoding, outputs, inputs)
    return Weight(name="weight", shape=(outputs, inputs), encoding=Encoding(encoding), data=data, file="none")
