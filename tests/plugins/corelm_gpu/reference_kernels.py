"""The executor without Triton: references in the place of its kernels, many times as fast as in the interpreter."""

import math
from types import SimpleNamespace

import corelm_gpu.attention_plan
import corelm_gpu.kv_cache
import corelm_gpu.ops
import corelm_gpu.sampling.device_sampler
import corelm_gpu.sampling.edits
import corelm_gpu.sampling.scores
import numpy as np
import torch
from corelm_gpu.kernels.attention_reference import attention_reference
from corelm_gpu.kernels.copy_blocks import copy_blocks_reference
from corelm_gpu.kernels.norm import add_norm_reference
from corelm_gpu.kernels.penalise import penalise_reference
from corelm_gpu.kernels.rotate_write import rotate_reference, write_reference
from corelm_gpu.kernels.silu import silu_mul_reference
from corelm_gpu.kernels.token_mask import apply_mask_reference


def install(monkeypatch):
    """Until the end of the test. Only for tensors in host memory."""
    for module, name, function in (
        (corelm_gpu.attention_plan, "decode_attention", lambda *args, **options: [later(decode, *args, **options)]),
        (corelm_gpu.attention_plan, "prefill_attention", lambda *args, **options: later(prefill, *args, **options)),
        (corelm_gpu.kv_cache, "copy_blocks", lambda *args: later(copy_blocks_reference, *args)),
        (corelm_gpu.ops, "rotate_write", lambda *args: later(rotate_write, *args)),
        (corelm_gpu.ops, "add_norm", lambda *args: later(add_norm, *args)),
        (corelm_gpu.ops, "silu_mul", lambda *args: later(silu_mul, *args)),
        (corelm_gpu.sampling.edits, "penalise", lambda *args: later(penalise, *args)),
        (corelm_gpu.sampling.edits, "apply_mask", lambda *args: later(apply_mask, *args)),
        (corelm_gpu.sampling.device_sampler, "sample", lambda *args: later(sample, *args)),
        (corelm_gpu.sampling.scores, "score_tokens", lambda *args: later(score_tokens, *args)),
    ):
        monkeypatch.setattr(module, name, function)


def later(function, *args, **options):
    """A launch."""
    return SimpleNamespace(run=lambda: function(*args, **options))


def decode(q, keys, values, tables, lengths, rows, output, *, splits, **options):
    attended = attention_reference(
        q[rows], keys, values, tables, lengths - 1, torch.ones_like(lengths), torch.arange(len(rows)), **options
    )
    output[rows] = attended.to(output.dtype)


def prefill(q, keys, values, tables, tile_slices, tile_starts, starts, lengths, offsets, output, **options):
    attended = attention_reference(q, keys, values, tables, starts, lengths, offsets, **options)
    for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True):
        output[offset : offset + length] = attended[offset : offset + length].to(output.dtype)


def rotate_write(q, k, v, cos, sin, positions, slots, rotated, keys, values):
    rotated.copy_(rotate_reference(q, cos, sin, positions))
    write_reference(keys, rotate_reference(k, cos, sin, positions), slots)
    write_reference(values, v, slots)


def add_norm(x, residual, weight, normed, eps):
    total, result = add_norm_reference(x, residual, weight, eps)
    residual.copy_(total)
    normed.copy_(result)


def silu_mul(gate, up, product):
    product.copy_(silu_mul_reference(gate, up))


def penalise(logits, *edits):
    logits.copy_(penalise_reference(logits, *edits))


def apply_mask(logits, rows, masks):
    logits.copy_(apply_mask_reference(logits, rows, masks))


def sample(logits, parameters, outcomes):
    """Of temperature, top_k and the random number alone."""
    floats = parameters.view(torch.float32)
    for row, scores in enumerate(logits.double()):
        temperature, number, top_k = floats[row, 0].item(), floats[row, 4].item(), int(parameters[row, 1])
        token = int(scores.argmax())
        if temperature > 0:
            least = scores.topk(top_k).values[-1] if top_k > 0 else -math.inf
            weights = torch.where(scores >= least, torch.exp((scores - scores.max()) / temperature), 0.0)
            token = int(torch.searchsorted(weights.cumsum(0), weights.sum() * number, right=True))
        outcomes[0, row] = token if torch.isfinite(scores.max()) else -1
        outcomes[1, row] = bool((scores == -math.inf).all())


def score_tokens(logits, tokens, counts, scores):
    floats, width = scores.view(torch.float32), (scores.shape[1] - 4) // 2
    for row, (each, token) in enumerate(zip(logits, tokens.tolist(), strict=True)):
        chosen, peak = each[token], each.max()
        floats[row, :3] = torch.stack([peak, torch.exp(each - peak).sum(), chosen])
        scores[row, 3] = (each > chosen).sum()
        ids = np.lexsort((np.arange(len(each)), -each.numpy()))[: int(counts[row])]
        scores[row, 4 : 4 + len(ids)] = torch.from_numpy(ids)
        floats[row, 4 + width : 4 + width + len(ids)] = each[ids]
