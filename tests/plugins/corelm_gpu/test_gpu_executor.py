"""The GPU executor as a whole, in Triton's interpreter where there is no GPU."""

import pytest
import torch
import transformers
from corelm_gpu.plugin import create
from corelm_gpu.settings import GpuSettings

from corelm import LLM
from corelm.api import SamplingParams
from corelm.testing import ExecutorConformance


class TestGpuExecutor(ExecutorConformance):
    settings = GpuSettings()
    dtype = "float32"
    exact = not torch.cuda.is_available()  # on a device the library of products sums in other orders for other sizes

    @pytest.fixture(autouse=True)
    def use_tiny_model(self, tiny_llama):
        self.model = tiny_llama

    def make_executor(self, context):
        return create(context)

    def damage(self, executor):
        """Where there is no GPU, asking one for its state is what fails."""
        executor._device = torch.device("cuda", 99)


@pytest.mark.parametrize("graphs", ["true", "false"])
def test_greedy_outputs_are_those_of_transformers(tiny_llama, monkeypatch, graphs):
    monkeypatch.setenv("CORELM_GPU_GRAPHS", graphs)
    prompts = [[7], list(range(5, 22)), [token * 7 % 160 for token in range(40)]]
    reference = transformers.LlamaForCausalLM.from_pretrained(tiny_llama.path)
    wanted = []
    for prompt in prompts:
        generated = reference.generate(torch.tensor([prompt]), max_new_tokens=6, do_sample=False, eos_token_id=None)
        wanted.append(tuple(generated[0, len(prompt) :].tolist()))
    with LLM(
        str(tiny_llama.path), executor="gpu", tokenizer="fake", dtype="float32", kv_cache_tokens=512, progress=False
    ) as llm:
        params = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
        for _ in ("computed", "partly from the prefix cache"):
            assert [output.token_ids for output in llm.generate(prompts, params)] == wanted
