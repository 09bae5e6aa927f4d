"""What a model gets of the machine: its longest sequence and the size of its KV cache."""

from corelm.api import ExecutorContext, ModelLoadError
from corelm_torch.config import ModelShape


def choose_max_model_len(asked: int | None, config: ModelShape) -> int:
    """The longest sequence, in tokens."""
    longest = config.max_position_embeddings
    if asked is not None and asked > longest:
        raise ModelLoadError(f"A maximum length of {asked} tokens was asked for, but the model supports {longest}.")
    return asked or longest


def choose_num_blocks(
    context: ExecutorContext,
    *,
    block_bytes: int,
    max_model_len: int,
    weight_bytes: int,
    swap_bytes: int,
    available: int,
    memory_fraction: float,
) -> int:
    """KV blocks of `block_bytes` that fit, beside weights and swap blocks, into `available` bytes of memory."""
    left = available - weight_bytes - swap_bytes
    if context.kv_cache_tokens is not None:
        wanted = max(context.kv_cache_tokens // context.block_size, 1)
    else:
        most = context.max_num_seqs * -(-max_model_len // context.block_size)
        wanted = max(min(int(left * memory_fraction) // block_bytes, most), 1)
    if wanted * block_bytes > left:
        swap = f", {context.swap_tokens} tokens of swap space {gib(swap_bytes)}" if swap_bytes else ""
        raise ModelLoadError(
            f"The weights take {gib(weight_bytes)}{swap} and a KV cache of {wanted * context.block_size} tokens "
            f"{gib(wanted * block_bytes)}, but only {gib(available)} of memory are available. Free memory, choose a "
            f"smaller KV cache{', less swap space' if swap else ''} or a smaller model."
        )
    return wanted


def num_swap_blocks(context: ExecutorContext) -> int:
    """Blocks that preempted sequences may keep beside the KV cache."""
    return context.swap_tokens // context.block_size


def gib(num_bytes: int) -> str:
    """A size for people."""
    return f"{num_bytes / 2**30:.2f} GiB"
