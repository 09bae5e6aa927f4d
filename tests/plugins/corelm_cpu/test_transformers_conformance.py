"""Models of transformers' own modules under the suite that plugin authors run, and behind the engine."""

import pytest
from architectures import RUNNING, VOCABULARY, make
from corelm_cpu.plugin import create
from corelm_cpu.settings import CpuSettings
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from corelm import LLM
from corelm.api import SamplingParams
from corelm.testing import ExecutorConformance


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """Make one, by its name in `RUNNING`."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = make(RUNNING[name](), tmp_path_factory.mktemp(name))
        return made[name]

    return get


class TestGpt2(ExecutorConformance):
    settings = CpuSettings(threads=1)
    dtype = "float32"
    name = "gpt2"
    max_model_len = 128

    @pytest.fixture(autouse=True)
    def use_tiny_model(self, checkpoint):
        self.model = checkpoint(self.name).resolved

    def make_executor(self, context):
        return create(context)


class TestGemma2(TestGpt2):
    name = "gemma2"


@pytest.fixture
def gpt2_with_tokenizer(tmp_path):
    """A GPT-2 that reads bytes, of which it knows less than all."""
    model = make(RUNNING["gpt2"](), tmp_path / "gpt2")
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())[: VOCABULARY - 1]
    tokenizer = Tokenizer(models.BPE({"<|endoftext|>": 0, **{s: number for number, s in enumerate(symbols, 1)}}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(model.resolved.path / "tokenizer.json"))
    return model, tokenizer


@pytest.mark.parametrize("kv_cache_tokens", [2048, 96])
def test_the_engine_generates_what_transformers_does(gpt2_with_tokenizer, kv_cache_tokens):
    """With little memory sequences give way to each other; the second time prefixes are cached."""
    model, tokenizer = gpt2_with_tokenizer
    texts = [f"the quick brown fox number {number} jumps" for number in range(4)]
    wanted = [tuple(model.generate(tokenizer.encode(text).ids, 10)) for text in texts]
    with LLM(
        str(model.resolved.path),
        executor="cpu",
        dtype="float32",
        max_model_len=64,
        kv_cache_tokens=kv_cache_tokens,
        max_num_batched_tokens=24,
        max_num_seqs=8,
        progress=False,
    ) as llm:
        params = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)
        for _ in range(2):
            outputs = llm.generate(texts, params)
            assert [output.token_ids for output in outputs] == wanted
            assert outputs[0].text == tokenizer.decode(list(wanted[0]))
