"""The real model, against transformers."""

import warnings

import pytest
import torch
import transformers

from corelm.api import ResolvedModel

PROMPTS = [
    "The capital of France is",
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "def fibonacci(n):\n    ",
]
TOKENS = 24


@pytest.fixture(scope="module")
def reference(demo_path):
    """(prompts as token ids, transformers' greedy continuations) in float32."""
    folder, name = demo_path.parent, demo_path.name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
        model.generation_config.eos_token_id = None
        prompts = [tokenizer(prompt).input_ids for prompt in PROMPTS]
        outputs = [model.generate(torch.tensor([ids]), max_new_tokens=TOKENS, do_sample=False) for ids in prompts]
    return prompts, [output[0, len(ids) :].tolist() for ids, output in zip(prompts, outputs, strict=True)]


@pytest.mark.model
def test_greedy_tokens_equal_transformers(driver_class, demo_path, reference):
    prompts, expected = reference
    driver = driver_class(ResolvedModel(name="demo", path=demo_path, format="gguf"), max_model_len=256)
    assert driver.generate(*prompts, tokens=TOKENS) == expected
