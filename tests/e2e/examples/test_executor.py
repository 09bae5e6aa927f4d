"""A third-party executor serves a model that corelm has no code for, with the tokens of the library it comes from."""

import json
import warnings

import pytest

pytestmark = pytest.mark.model

GENERATE = """
import json, sys
from corelm import LLM, SamplingParams

folder, jobs = json.loads(sys.argv[1])
for prompts, params, settings in jobs:
    with LLM(folder, executor="transformers", progress=False, **settings) as llm:
        outputs = llm.generate(prompts, [SamplingParams(**one) for one in params])
        preemptions = llm._engine.snapshot().preemptions
    print(json.dumps([[output.token_ids for output in outputs], preemptions]))
"""
PROMPTS = ["Hello", "The sky is blue because", "a", "One, two, three, four, five, six, seven, eight"]
TOKENS = 40


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """(folder, model): a tiny GPT-2 with random weights and one token per byte."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel

    folder = tmp_path_factory.mktemp("gpt2")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={byte: number for number, byte in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = GPT2Config(
        vocab_size=len(alphabet),
        n_positions=128,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=None,
        eos_token_id=None,
        initializer_range=0.5,
    )
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GPT2LMHeadModel(config).eval()
        model.save_pretrained(folder)
    return folder, model, tokenizer


@pytest.fixture
def generate(developer, gpt2):
    """Token ids for each prompt, and how often a request was preempted, of several jobs."""

    def run(*jobs):
        done = developer.run("-c", GENERATE, json.dumps([str(gpt2[0]), jobs]))
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def expected(gpt2, prompt, count):
    import torch

    _, model, tokenizer = gpt2
    tokens = torch.tensor([tokenizer.encode(prompt).ids])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        output = model.generate(tokens, max_new_tokens=count, do_sample=False, pad_token_id=0)
    return output[0, tokens.shape[1] :].tolist()


GREEDY = {"temperature": 0, "max_tokens": TOKENS}
DRAWN = {"temperature": 1.0, "top_k": 50, "top_p": 0.95, "min_p": 0.001, "seed": 7, "max_tokens": TOKENS}


def test_tokens_are_those_of_transformers_however_memory_and_budget_run_out(generate, gpt2):
    reference = [expected(gpt2, prompt, TOKENS) for prompt in PROMPTS]
    assert len({tuple(tokens) for tokens in reference}) == len(PROMPTS)
    # Prompts in chunks of at most 8 tokens, and room for about two of the four sequences.
    scarce = {"max_num_batched_tokens": 8, "kv_cache_tokens": 160, "block_size": 8}
    plenty, little, narrow = generate(
        (PROMPTS, [GREEDY] * 4, {}), (PROMPTS, [GREEDY] * 4, scarce), (PROMPTS, [DRAWN | {"top_k": 1}] * 4, {})
    )
    assert plenty == [reference, 0]
    assert little[0] == reference
    assert little[1] > 0
    assert narrow == [reference, 0]


def test_a_draw_depends_on_nothing_but_the_seed(generate):
    (together, _), (alone, preemptions) = generate(
        ([*PROMPTS, "a"], [DRAWN] * 4 + [DRAWN | {"seed": 8}], {}),
        (["a"] * 4, [DRAWN] * 4, {"kv_cache_tokens": 80, "block_size": 8}),
    )
    assert preemptions
    assert alone == [together[2]] * 4
    assert together[4] != together[2]


def test_the_command_runs_it_and_refuses_what_it_is_not_capable_of(developer, gpt2):
    lines = [{"prompt": "Hello", "temperature": 0, "max_tokens": 8}, {"prompt": "Hello", "logprobs": 1}]
    flags = ["--executor", "transformers", "--model", gpt2[0], "--frontend", "jsonl"]
    done = developer.corelm("run", *flags, stdin="\n".join(map(json.dumps, lines)))
    answers = {answer["line"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert answers[1]["text"] == gpt2[2].decode(expected(gpt2, "Hello", 8))
    assert "logprobs" in answers[2]["error"]
    assert "transformers on cpu, float32" in done.stderr


def test_files_it_cannot_read_are_one_line(developer, gpt2, tmp_path):
    config = json.loads((gpt2[0] / "config.json").read_text()) | {"model_type": "unheard-of"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes((gpt2[0] / name).read_bytes())
    done = developer.corelm("run", "--executor", "transformers", "--model", tmp_path, "--frontend", "jsonl", code=2)
    assert f"corelm: error: transformers cannot load {tmp_path}: " in done.stderr
