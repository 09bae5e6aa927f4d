"""The kernels beside attention, and PyTorch's products, at the shapes of a model's layers."""

from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from clock import DEVICE
from corelm_gpu.kernels.copy_blocks import copy_blocks
from corelm_gpu.kernels.norm import add_norm
from corelm_gpu.kernels.quantised_linear import quantised_linear
from corelm_gpu.kernels.rotate_write import rotate_write
from corelm_gpu.kernels.sample import sample
from corelm_gpu.kernels.silu import silu_mul
from corelm_gpu.kernels.token_mask import apply_mask
from corelm_gpu.quantised import QuantisedWeight

COPIED_BLOCKS = 64
GROUP = 32
SCALE_BYTES = 2
"""Quantised weights that share a scale, and what it takes."""
SHOWN = 90
"""Characters of an error."""
SAMPLING = {
    "greedy": (0.0, 0, 1.0, 0.0),
    "temperature": (0.8, 0, 1.0, 0.0),
    "top_p": (0.8, 0, 0.9, 0.0),
    "top_k and top_p": (0.8, 40, 0.9, 0.0),
}
"""Temperature, top_k, top_p, min_p."""


def measure(bench, record):
    """Time every kernel; one that fails does not keep the others from it."""
    failed = []
    empty = torch.zeros(1, device=DEVICE)
    record.add_time("one addition of one number", bench.clock.seconds(lambda: empty.add_(1)), 0.0)
    for case, make, num_bytes, operations in cases(bench):
        try:
            seconds = bench.clock.seconds(make())
        except Exception as error:  # noqa: BLE001 - it is reported, and fails the part
            record.add(case, f"{type(error).__name__}: {error}"[:SHOWN])
            failed.append(case)
            continue
        floor = bench.ceilings.seconds(num_bytes=num_bytes, operations=operations)
        record.add_time(case, seconds, floor, bytes=num_bytes)
    if failed:
        raise RuntimeError(f"{len(failed)} failed: {', '.join(failed)}")


def cases(bench):
    """Name, what makes a run of it, and the bytes and operations that it needs."""
    config, sizes, size = bench.config, bench.sizes, bench.dtype.itemsize
    for rows in sizes.rows:
        hidden, inner = rows * config.hidden_size, rows * config.intermediate_size
        heads = rows * config.head_dim * (config.num_heads + config.num_kv_heads)
        yield f"add and norm, {rows} rows", partial(norm, bench, rows), 4 * hidden * size, 0
        yield f"silu, {rows} rows", partial(silu, bench, rows), 3 * inner * size, 0
        yield f"rotate and write, {rows} rows", partial(rotation, bench, rows), 2 * heads * size, 0
    for rows in sizes.steps:
        for name, inputs, outputs in products(config):
            work = (inputs * outputs * size, 2 * rows * inputs * outputs)
            yield f"{name} by PyTorch, {rows} rows", partial(plain, bench, rows, inputs, outputs), *work
        inputs, outputs = config.hidden_size, 2 * config.intermediate_size
        for bits in (4, 8):
            work = (inputs * outputs // GROUP * (GROUP * bits // 8 + SCALE_BYTES), 2 * rows * inputs * outputs)
            yield f"gate and up in {bits} bits, {rows} rows", partial(quantised, bench, rows, bits), *work
        logits = rows * config.vocab_size * 4
        for name, parameters in SAMPLING.items():
            yield f"sampling, {name}, {rows} rows", partial(sampling, bench, rows, parameters), logits, 0
        yield f"mask, {rows} rows", partial(mask, bench, rows), logits, 0
    block = config.num_kv_heads * sizes.block_size * config.head_dim * size
    copied = 2 * COPIED_BLOCKS * 2 * config.num_layers * block
    yield f"copies of {COPIED_BLOCKS} blocks", partial(copies, bench), copied, 0


def products(config):
    """The weights of a layer, and of the output layer, that are multiplied at once: inputs and outputs."""
    width = config.hidden_size
    yield "queries, keys and values", width, config.head_dim * (config.num_heads + 2 * config.num_kv_heads)
    yield "attention's output", config.num_heads * config.head_dim, width
    yield "gate and up", width, 2 * config.intermediate_size
    yield "down", config.intermediate_size, width
    yield "logits", width, config.vocab_size


def normal(bench, *shape, dtype=None):
    """Random numbers on the device."""
    return torch.randn(*shape, device=DEVICE).to(dtype or bench.dtype)


def norm(bench, rows):
    x, residual = (normal(bench, rows, bench.config.hidden_size) for _ in range(2))
    return add_norm(x, residual, normal(bench, bench.config.hidden_size), torch.empty_like(x), 1e-5).run


def silu(bench, rows):
    gate, up = normal(bench, rows, 2 * bench.config.intermediate_size).chunk(2, dim=1)
    return silu_mul(gate, up, torch.empty(up.shape, dtype=up.dtype, device=DEVICE)).run


def rotation(bench, rows):
    config, block_size = bench.config, bench.sizes.block_size
    heads = config.num_heads + 2 * config.num_kv_heads
    q, k, v = normal(bench, rows, heads, config.head_dim).split(
        [config.num_heads, config.num_kv_heads, config.num_kv_heads], dim=1
    )
    cos, sin = torch.rand(2, rows, config.head_dim // 2, device=DEVICE)
    keys, values = (
        normal(bench, -(-rows // block_size), config.num_kv_heads, block_size, config.head_dim) for _ in range(2)
    )
    positions, slots = torch.arange(rows, device=DEVICE), torch.randperm(rows, device=DEVICE)
    rotated = torch.empty(q.shape, dtype=q.dtype, device=DEVICE)
    return rotate_write(q, k, v, cos, sin, positions, slots, rotated, keys, values).run


def plain(bench, rows, inputs, outputs):
    x, weight = normal(bench, rows, inputs), normal(bench, outputs, inputs)
    return partial(F.linear, x, weight)


def quantised(bench, rows, bits):
    inputs, outputs = bench.config.hidden_size, 2 * bench.config.intermediate_size
    low, kind = (0, torch.uint8) if bits == 4 else (-128, torch.int8)
    weight = QuantisedWeight(
        weights=torch.randint(low, low + 256, (outputs, inputs * bits // 8), dtype=kind, device=DEVICE),
        scales=normal(bench, outputs, inputs // GROUP, dtype=torch.float16),
        offsets=None,
        zero=8 if bits == 4 else 0,
        group=GROUP,
        shape=(outputs, inputs),
    )
    y = torch.empty(rows, outputs, dtype=bench.dtype, device=DEVICE)
    return quantised_linear(normal(bench, rows, inputs), weight, None, y).run


def sampling(bench, rows, parameters):
    temperature, top_k, top_p, min_p = parameters
    bits = torch.tensor([temperature, 0, top_p, min_p, 0.5]).view(torch.int32)
    bits[1] = top_k
    logits = 3 * normal(bench, rows, bench.config.vocab_size, dtype=torch.float32)
    outcomes = torch.empty(2, rows, dtype=torch.int64, device=DEVICE)
    return sample(logits, bits.to(DEVICE).repeat(rows, 1), outcomes).run


def mask(bench, rows):
    vocab_size = bench.config.vocab_size
    logits = normal(bench, rows, vocab_size, dtype=torch.float32)
    masks = torch.randint(-(2**31), 2**31, (rows, -(-vocab_size // 32)), dtype=torch.int32, device=DEVICE)
    return apply_mask(logits, torch.arange(rows, dtype=torch.int32, device=DEVICE), masks).run


def copies(bench):
    config = bench.config
    words = config.num_kv_heads * bench.sizes.block_size * config.head_dim * bench.dtype.itemsize // 4
    cache = torch.zeros(2 * config.num_layers, 2 * COPIED_BLOCKS, words, dtype=torch.int32, device=DEVICE)
    pairs = torch.arange(2 * COPIED_BLOCKS, dtype=torch.int32, device=DEVICE).view(2, -1).T.contiguous()
    return copy_blocks(cache, cache, pairs).run
