"""A model with quantised weights as a whole: what is kept in blocks gives the tokens of their numbers."""

import corelm_gpu.ops
import pytest
import torch
import transformers
from checkpoints import write_gguf
from gguf import GGMLQuantizationType
from quantised_blocks import random_blocks

from corelm import LLM
from corelm.api import SamplingParams

ENCODINGS = {
    "embed_tokens": "Q8_0",
    "q_proj": "Q4_0",
    "k_proj": "Q4_1",
    "v_proj": "Q5_0",
    "o_proj": "Q6_K",
    "gate_proj": "Q4_K",
    "up_proj": "Q5_K",
    "down_proj": "Q6_K",
    "lm_head": "Q6_K",
}
CONFIG = {
    "vocab_size": 160,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
ROWS = corelm_gpu.ops.DEQUANTISED_ROWS


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    def blocks(name, array):
        encoding = ENCODINGS[name.split(".")[-2]]
        return random_blocks(encoding, *array.shape, spread=0.2), GGMLQuantizationType[encoding]

    torch.manual_seed(3)
    source = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG))
    return write_gguf(tmp_path_factory.mktemp("gguf") / "model.gguf", source, "llama", blocks=blocks)


def tokens(model, weights):
    prompts = [list(range(5, 22)), [token * 7 % 160 for token in range(ROWS + 5)]]
    with LLM(
        str(model.path),
        executor="gpu",
        tokenizer="fake",
        dtype="float32",
        kv_cache_tokens=512,
        max_num_batched_tokens=ROWS + 32,
        max_num_seqs=2,
        progress=False,
        gpu={"weights": weights},
    ) as llm:
        params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
        return [output.token_ids for output in llm.generate(prompts, params)]


def test_kept_weights_give_the_tokens_of_plain_ones(model, monkeypatch):
    plain = tokens(model, "plain")
    called = set()
    for name in ("dequantise", "quantised_linear"):
        monkeypatch.setattr(corelm_gpu.ops, name, spy(getattr(corelm_gpu.ops, name), called))
    assert tokens(model, "auto") == plain
    assert called == {"dequantise", "quantised_linear"}, "both ways were taken"


def spy(kernel, called):
    def call(*arguments):
        called.add(kernel.__name__)
        return kernel(*arguments)

    return call
