"""The GPU executor as a whole, in Triton's interpreter where there is no GPU."""

import pytest
import torch
import transformers
from corelm_gpu.plugin import create
from corelm_gpu.settings import GpuSettings

from corelm.api import ResolvedModel
from corelm.testing import ExecutorConformance

CONFIG = {
    "vocab_size": 160,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny_llama")
    torch.manual_seed(7)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG)).save_pretrained(folder)
    return ResolvedModel(name="tiny", path=folder, format="huggingface")


class TestGpuExecutor(ExecutorConformance):
    settings = GpuSettings()
    dtype = "float32"

    @pytest.fixture(autouse=True)
    def use_tiny_model(self, tiny_llama):
        self.model = tiny_llama

    def make_executor(self, context):
        return create(context)
