"""What a model gets of the machine: its dtype, its longest sequence and the size of its KV cache."""

import torch
from corelm_torch.config import ModelConfig

from corelm.api import ExecutorContext, ModelLoadError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def has_bfloat16() -> bool:
    """Whether the CPU has instructions for products in bfloat16."""
    supported: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return supported


def choose_dtype(dtype: str) -> torch.dtype:
    """The dtype to compute in. ``auto`` is bfloat16 on CPUs that have instructions for it."""
    if dtype == "auto":
        return torch.bfloat16 if has_bfloat16() else torch.float32
    if dtype not in DTYPES:
        raise ModelLoadError(f"The CPU executor cannot compute in {dtype}; use auto, bfloat16 or float32.")
    return DTYPES[dtype]


def choose_max_model_len(asked: int | None, config: ModelConfig) -> int:
    """The longest sequence, in tokens."""
    longest = config.max_position_embeddings
    if asked is not None and asked > longest:
        raise ModelLoadError(f"A maximum length of {asked} tokens was asked for, but the model supports {longest}.")
    return asked or longest


def block_bytes(config: ModelConfig, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one KV block over all layers."""
    # The native kernels, which compute in bfloat16, keep tokens in pairs.
    slots = block_size + block_size % 2 if dtype == torch.bfloat16 else block_size
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * slots * dtype.itemsize


def choose_num_blocks(
    context: ExecutorContext,
    config: ModelConfig,
    *,
    dtype: torch.dtype,
    max_model_len: int,
    weight_bytes: int,
    available: int,
    memory_fraction: float,
) -> int:
    """KV blocks that fit, beside weights of `weight_bytes` and the swap blocks, into `available` bytes."""
    block = block_bytes(config, context.block_size, dtype)
    swap_bytes = num_swap_blocks(context) * block
    left = available - weight_bytes - swap_bytes
    if context.kv_cache_tokens is not None:
        wanted = max(context.kv_cache_tokens // context.block_size, 1)
    else:
        most = context.max_num_seqs * -(-max_model_len // context.block_size)
        wanted = max(min(int(left * memory_fraction) // block, most), 1)
    if wanted * block > left:
        swap = f", {context.swap_tokens} tokens of swap space {gib(swap_bytes)}" if swap_bytes else ""
        raise ModelLoadError(
            f"The weights take {gib(weight_bytes)}{swap} and a KV cache of {wanted * context.block_size} tokens "
            f"{gib(wanted * block)}, but only {gib(available)} of memory are available. Free memory, choose a smaller "
            f"KV cache{', less swap space' if swap else ''} or a smaller model."
        )
    return wanted


def num_swap_blocks(context: ExecutorContext) -> int:
    """Blocks that preempted sequences may keep beside the KV cache."""
    return context.swap_tokens // context.block_size


def gib(num_bytes: int) -> str:
    """A size for people."""
    return f"{num_bytes / 2**30:.2f} GiB"
