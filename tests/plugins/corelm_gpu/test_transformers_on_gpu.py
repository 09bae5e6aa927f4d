"""Models of transformers' own modules on the GPU executor, in Triton's interpreter where there is no GPU."""

import pytest
from architectures import RUNNING, make

from corelm import LLM
from corelm.api import SamplingParams


@pytest.mark.parametrize("name", ["gptj", "gemma2", "mixtral"])
def test_greedy_outputs_are_those_of_transformers(tmp_path, name):
    """Scales, softcaps, windows and several layers' caches reach the kernels."""
    model = make(RUNNING[name](), tmp_path)
    prompts = [[7], [token * 7 % 150 for token in range(18)]]
    wanted = [tuple(model.generate(tokens, 4)) for tokens in prompts]
    with LLM(
        str(tmp_path), executor="gpu", tokenizer="fake", dtype="float32", kv_cache_tokens=512, progress=False
    ) as llm:
        params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
        assert [output.token_ids for output in llm.generate(prompts, params)] == wanted
