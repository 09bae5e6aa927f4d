"""A KV cache in 8 bits: less memory, and results a little off."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
import transformers
from corelm_gpu.kv_cache import KVCache
from corelm_torch.ops import Ops
from corelm_torch.parts import load_parts
from gpu_kernels import DEVICE

from corelm import LLM
from corelm.api import ResolvedModel, SamplingParams

CONFIG = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
}


PROMPT = [token * 7 % 160 for token in range(60)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(7)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG)).save_pretrained(folder)
    return ResolvedModel(name="tiny", path=folder, format="huggingface")


class Rounding(Ops):
    """Attention over a whole prompt, with keys and values as the cache would hold them."""

    def attention(self, layer, q, k, v, *, scale=None):
        k, v = (x.to(torch.float8_e4m3fn).float().transpose(0, 1) for x in (k, v))
        output = F.scaled_dot_product_attention(q.transpose(0, 1), k, v, is_causal=True, scale=scale, enable_gqa=True)
        return output.transpose(0, 1).flatten(1)


def wanted_logprobs(model):
    reference = load_parts(model).build(torch.float32)
    reference.load(max_model_len=64, device=torch.device("cpu"), progress=lambda fraction, text: None)
    tokens, positions = torch.tensor(PROMPT), torch.arange(len(PROMPT))
    ops = Rounding()
    with torch.inference_mode():
        logprobs = reference.logits(reference(tokens, positions, positions, ops), ops).log_softmax(-1)
    return logprobs[:-1].gather(1, tokens[1:, None]).flatten().numpy()


def test_results_are_those_of_rounded_keys_and_values(model):
    with LLM(
        str(model.path),
        executor="gpu",
        tokenizer="fake",
        dtype="float32",
        kv_cache_tokens=256,
        progress=False,
        gpu={"kv": "fp8"},
    ) as llm:
        (output,) = llm.generate([PROMPT], SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0))
    found = np.array([row.logprob for row in output.prompt_logprobs if row is not None])
    # A number on the border of two in 8 bits may become either.
    assert np.abs(found - wanted_logprobs(model)).max() < 0.02


def test_blocks_are_copied_and_swapped_as_they_are():
    cache = KVCache(
        layers=2,
        num_blocks=4,
        num_swap_blocks=2,
        kv_heads=2,
        block_size=3,
        head_dim=16,
        dtype=torch.float8_e4m3fn,
        device=DEVICE,
    )
    assert cache.num_bytes == 2 * 2 * 4 * 2 * 3 * 16
    keys, values = cache.layer(1)
    written = torch.arange(192, dtype=torch.uint8, device=DEVICE).view(2, 2, 3, 16)
    keys.view(torch.uint8)[0], values.view(torch.uint8)[0] = written
    cache.copy([(0, 2)])
    cache.swap_out([(2, 1)])
    cache.swap_in([(1, 3)])
    for block in (2, 3):
        assert torch.equal(torch.stack([keys[block], values[block]]).view(torch.uint8), written)
