"""What this device can do at best, measured on the spot, and how much work things are."""

import torch
from clock import DEVICE


class Ceilings:
    """Bytes per second of a copy, read and written, and operations per second of a large product."""

    def __init__(self, clock, sizes):
        source = torch.randint(-128, 127, (sizes.copied_bytes,), dtype=torch.int8, device=DEVICE)
        target = torch.empty_like(source)
        self.bytes_per_s = 2 * sizes.copied_bytes / clock.seconds(lambda: target.copy_(source))
        a, b = (torch.randn(sizes.product, sizes.product, device=DEVICE).bfloat16() for _ in range(2))
        product = torch.empty_like(a)
        self.operations_per_s = 2 * sizes.product**3 / clock.seconds(lambda: torch.mm(a, b, out=product))

    def seconds(self, num_bytes=0, operations=0):
        """The least that so much work can take."""
        return max(num_bytes / self.bytes_per_s, operations / self.operations_per_s)


def layer_parameters(config):
    """Weights of a layer's products."""
    attention = 2 * config.hidden_size * config.head_dim * (config.num_heads + config.num_kv_heads)
    return attention + 3 * config.hidden_size * config.intermediate_size


def step_parameters(config):
    """Weights that a step of one token reads; an embedding of one row is nothing."""
    return config.num_layers * layer_parameters(config) + config.hidden_size * config.vocab_size


def kv_bytes(config, tokens, itemsize):
    """Keys and values of so many tokens, in all layers."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * tokens * itemsize


def decode_bytes(config, batch, context, itemsize):
    """What a step of `batch` sequences reads."""
    return step_parameters(config) * itemsize + kv_bytes(config, batch * context, itemsize)


def attention_operations(config, tokens):
    """Of causal attention over a prompt, in one layer."""
    return 2 * config.num_heads * config.head_dim * tokens**2


def prompt_operations(config, tokens):
    """Of computing a prompt, but for its logits."""
    products = 2 * tokens * layer_parameters(config)
    return config.num_layers * (products + attention_operations(config, tokens))
