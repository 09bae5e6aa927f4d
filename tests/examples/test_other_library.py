import warnings

import pytest
from corelm_transformers.executor import TransformersExecutor

from corelm.api import Executor, ExecutorContext, ResolvedModel
from corelm.testing import ExecutorConformance


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """A folder with a tiny GPT-2 of random weights, for which one thread is the fastest."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("gpt2")
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=200, n_positions=256, n_embd=32, n_layer=2, n_head=2, initializer_range=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        GPT2LMHeadModel(config).save_pretrained(folder)
    yield folder
    torch.set_num_threads(threads)


class TestTransformersExecutor(ExecutorConformance):
    exact = False  # how a prompt is cut changes the last bits

    @pytest.fixture(autouse=True)
    def _model(self, gpt2):
        self.model = ResolvedModel(name="tiny", path=gpt2, format="huggingface")

    def make_executor(self, context: ExecutorContext) -> Executor:
        return TransformersExecutor(context)
