"""A third-party logits processor, installed with pip, changes the demo model's answers as transformers' own does."""

import importlib
import json
import subprocess
import sys
import urllib.error
import urllib.request
from itertools import pairwise
from pathlib import Path

import pytest
from e2e_texts import TEXT

from corelm import LLM, SamplingParams

EXAMPLE = Path(__file__).parents[2] / "examples" / "no_repeat_ngram"
NAME = "no_repeat_ngram"
NEW = 12
PLAIN = SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True)
NO_PAIR_TWICE = SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True, logits_processors={NAME: 2})

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder that holds the installed example and nothing else."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--target", str(folder), str(EXAMPLE)], check=True, timeout=400)
    return folder


@pytest.fixture(scope="module")
def llm(site):
    """With so small a cache that the prompts preempt each other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        importlib.invalidate_caches()
        options = {"dtype": "float32", "kv_cache_tokens": 256, "prefix_cache": False, "progress": False}
        with LLM(logits_processors=[NAME], **options) as llm:
            yield llm


@pytest.fixture(scope="module")
def prompts(reference):
    tokenizer, _ = reference
    tokens = tokenizer(TEXT)["input_ids"]
    return [tokens[i : i + 15] * 2 for i in range(0, 60, 15)]


def transformers_greedy(reference, prompt, **options):
    import torch

    _, model = reference
    ids = torch.tensor([prompt])
    fixed = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    with torch.inference_mode():
        output = model.generate(ids, attention_mask=torch.ones_like(ids), **fixed, **options)
    return output[0, len(prompt) :].tolist()


def test_greedy_tokens_equal_transformers_while_others_do_without(llm, reference, prompts):
    expected = [transformers_greedy(reference, prompt, no_repeat_ngram_size=2) for prompt in prompts]
    plain = [transformers_greedy(reference, prompt) for prompt in prompts]
    assert all(one != other for one, other in zip(expected, plain, strict=True))
    before = llm._engine.snapshot().preemptions
    outputs = llm.generate(prompts * 2, [NO_PAIR_TWICE] * len(prompts) + [PLAIN] * len(prompts))
    assert [list(output.token_ids) for output in outputs] == expected + plain
    assert llm._engine.snapshot().preemptions > before


def test_each_choice_is_what_a_request_of_its_own_would_be(llm, prompts):
    def sampled(**values):
        return SamplingParams(max_tokens=NEW, ignore_eos=True, logits_processors={NAME: 2}, **values)

    together = llm.generate(prompts[0], sampled(n=3, seed=40))
    alone = llm.generate([prompts[0]] * 3, [sampled(seed=40 + index) for index in range(3)])
    assert [output.token_ids for output in together] == [output.token_ids for output in alone]
    for output in together:
        pairs = list(pairwise([*prompts[0], *output.token_ids]))
        assert not set(pairs[len(prompts[0]) - 1 :]) & set(pairs[: len(prompts[0]) - 1])
        assert len(set(pairs[len(prompts[0]) - 1 :])) == NEW


def complete(server, **body):
    body = {"model": "SmolLM2-135M-Instruct", "max_tokens": NEW, "temperature": 0, "ignore_eos": True, **body}
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{server.url}/v1/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_over_http(serve, site, llm, prompts):
    flags = ["--logits-processors", NAME, "--dtype", "float32", "--kv-cache-tokens", "1024"]
    server = serve(*flags, PYTHONPATH=str(site))
    server.wait_ready(300)
    status, reply = complete(server, prompt=prompts[0], logits_processors={NAME: 2})
    assert (status, reply["choices"][0]["text"]) == (200, llm.generate(prompts[0], NO_PAIR_TWICE)[0].text)
    status, reply = complete(server, prompt=prompts[0], logits_processors={NAME: 0})
    assert (status, reply["error"]["param"]) == (400, f"logits_processors.{NAME}")
    assert reply["error"]["message"] == f"logits_processors.{NAME}: must be an integer between 1 and 100"
    status, reply = complete(server, prompt=prompts[0], logits_processors={"grammar": 1})
    assert (status, reply["error"]["param"]) == (400, "logits_processors")
    assert NAME in reply["error"]["message"]


def test_an_executor_that_cannot_ends_the_start_with_one_line(serve, site):
    fake = {"CORELM_EXECUTOR": "fake", "CORELM_TOKENIZER": "fake", "CORELM_MODEL": "fake"}
    server = serve(**fake, CORELM_LOGITS_PROCESSORS=NAME, PYTHONPATH=str(site))
    output, _ = server.process.communicate(timeout=30)
    assert server.process.returncode == 2
    assert "executor 'fake'" in output.splitlines()[-1]
    assert NAME in output.splitlines()[-1]
