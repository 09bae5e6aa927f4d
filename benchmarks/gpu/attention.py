"""Both attention kernels at a real model's shape: against PyTorch, and against what the device can do."""

import torch
from ceilings import attention_operations
from clock import DEVICE
from corelm_gpu.attention_plan import choose_splits
from corelm_gpu.kernels.decode_attention import decode_attention
from corelm_gpu.kernels.prefill_attention import prefill_attention, tile_rows

DECODE_TARGET = 0.8
PREFILL_TARGET = 0.5
EXTRA_BLOCKS = 16
"""That sequences of any length may need beyond their tokens."""
CHECKED_ROWS = 32
"""At the end of a prompt: those with the longest contexts."""


class Attention:
    """Random keys and values of one layer, in blocks that lie scattered."""

    def __init__(self, bench, tokens, kv_dtype):
        """Room for so many `tokens` of sequences that fill their blocks."""
        self._config, self._block_size, self._dtype = bench.config, bench.sizes.block_size, bench.dtype
        self._num_blocks = tokens // self._block_size + EXTRA_BLOCKS
        shape = (self._num_blocks, self._config.num_kv_heads, self._block_size, self._config.head_dim)
        self._keys, self._values = (
            torch.empty(shape, dtype=bench.dtype, device=DEVICE).normal_().to(kv_dtype) for _ in range(2)
        )

    def decode(self, batch, context):
        """What runs a step of `batch` sequences, and its error on the last of them."""
        tables, q, output = self._case(batch, context, batch)
        launches = decode_attention(
            q,
            self._keys,
            self._values,
            tables,
            torch.full((batch,), context, dtype=torch.int32, device=DEVICE),
            torch.arange(batch, dtype=torch.int32, device=DEVICE),
            output,
            window=None,
            splits=choose_splits(context, batch * self._config.num_kv_heads),
        )
        run = running(launches)
        run()
        return run, error(output[-1:], self._reference(q[-1:], tables[-1], context))

    def prefill(self, tokens):
        """What runs a step of one prompt, and its error on the last rows."""
        tables, q, output = self._case(1, tokens, tokens)
        step = tile_rows(self._config.head_dim, q.dtype) // (self._config.num_heads // self._config.num_kv_heads)
        starts = torch.arange(0, tokens, step, dtype=torch.int32, device=DEVICE)
        zero = torch.zeros(1, dtype=torch.int32, device=DEVICE)
        launch = prefill_attention(
            q,
            self._keys,
            self._values,
            tables,
            torch.zeros_like(starts),
            starts,
            zero,
            zero + tokens,
            zero,
            output,
            window=None,
        )
        run = running([launch])
        run()
        last = min(CHECKED_ROWS, tokens)
        return run, error(output[-last:], self._reference(q[-last:], tables[0], tokens))

    def _case(self, batch, context, rows):
        order = torch.randperm(self._num_blocks, dtype=torch.int32, device=DEVICE)
        tables = order[: batch * self._blocks(context)].view(batch, -1)
        shape = (rows, self._config.num_heads, self._config.head_dim)
        q = torch.empty(shape, dtype=self._dtype, device=DEVICE).normal_()
        return tables, q, torch.full_like(q, torch.nan)

    def _reference(self, q, table, context):
        """Attention of the last rows of a context, in float32."""
        group = self._config.num_heads // self._config.num_kv_heads
        keys, values = (
            cache[table.long()].float().transpose(0, 1).flatten(1, 2)[:, :context].repeat_interleave(group, 0)
            for cache in (self._keys, self._values)
        )
        scores = q.float().transpose(0, 1) @ keys.transpose(1, 2) * q.shape[2] ** -0.5
        positions = torch.arange(context, device=DEVICE)
        hidden = positions > positions[-len(q) :, None]
        return (scores.masked_fill(hidden, -torch.inf).softmax(-1) @ values).transpose(0, 1)

    def _blocks(self, context):
        return -(-context // self._block_size)


def running(launches):
    """What launches them one after the other."""

    def run():
        for launch in launches:
            launch.run()

    return run


def error(found, wanted):
    """Of all numbers together, relative."""
    return ((found.float() - wanted).norm() / wanted.norm()).item()


def measure(bench, record):
    """Time all cases."""
    sizes = bench.sizes
    longest = max(*sizes.prefills, *(batch * context for batch, context in sizes.decodes))
    attention = Attention(bench, longest, bench.dtype)
    measure_decodes(bench, record, attention, sizes.decodes, "decode", bench.dtype.itemsize)
    for tokens in sizes.prefills:
        run, wrong = attention.prefill(tokens)
        operations = attention_operations(bench.config, tokens)
        report(bench, record, f"prompt of {tokens}", run, wrong, PREFILL_TARGET, operations=operations)
    del attention
    longest = max(batch * context for batch, context in sizes.decodes_fp8)
    attention = Attention(bench, longest, torch.float8_e4m3fn)
    measure_decodes(bench, record, attention, sizes.decodes_fp8, "decode in fp8", 1)


def measure_decodes(bench, record, attention, cases, name, itemsize):
    """Time steps of sequences and contexts."""
    for batch, context in cases:
        run, wrong = attention.decode(batch, context)
        read = 2 * batch * context * bench.config.num_kv_heads * bench.config.head_dim * itemsize
        report(bench, record, f"{name} {batch} x {context}", run, wrong, DECODE_TARGET, num_bytes=read)


def report(bench, record, case, run, wrong, target, **work):
    """Time one case, and refuse a result that is wrong."""
    seconds = bench.clock.seconds(run)
    record.add_time(case, seconds, bench.ceilings.seconds(**work), target=target, error=wrong, **work)
    if not wrong < 0.02:
        raise ValueError(f"{case}: the relative error is {wrong:.3g}")
