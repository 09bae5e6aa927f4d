"""Beam search and processed logits equal transformers' in float32."""

import pytest
from e2e_texts import TEXT

from corelm import LLM, BeamSearch, SamplingParams

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

LENGTHS = [1, 4, 9, 15, 16, 17, 25, 32, 40, 60]
NEW = 10


@pytest.fixture(scope="module")
def prompts(reference):
    tokenizer, _ = reference
    tokens = tokenizer(TEXT)["input_ids"]
    return [tokens[7 * i : 7 * i + length] for i, length in enumerate(LENGTHS)]


@pytest.fixture(scope="module")
def llm():
    with LLM(dtype="float32", kv_cache_tokens=4096, progress=False) as llm:
        yield llm


def generate(reference, prompt, **options):
    """What transformers appends to a prompt, for each sequence it returns."""
    import torch

    _, model = reference
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=0, max_new_tokens=NEW, **options
        )
    return [row[len(prompt) :].tolist() for row in output]


@pytest.mark.parametrize(("width", "penalty", "stopping"), [(4, 1.0, False), (3, 0.0, "never"), (2, 2.0, True)])
def test_beam_search(reference, llm, prompts, width, penalty, stopping):
    # A frequent token as the end makes beams of all lengths finish.
    end = reference[0](",")["input_ids"][0]
    params = SamplingParams(
        n=width,
        beam=BeamSearch(width=width, length_penalty=penalty, early_stopping=stopping),
        max_tokens=NEW,
        ignore_eos=True,
        stop_token_ids=(end,),
    )
    outputs = llm.generate(prompts, params)
    for index, prompt in enumerate(prompts):
        expected = generate(
            reference,
            prompt,
            num_beams=width,
            num_return_sequences=width,
            length_penalty=penalty,
            early_stopping=stopping,
            eos_token_id=end,
        )
        got = [list(output.token_ids) for output in outputs[index * width : (index + 1) * width]]
        assert got == [cut(tokens, end) for tokens in expected]


def cut(tokens, end):
    """Without the padding behind the end."""
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


def test_repetition_penalty_and_bias(reference, llm, prompts):
    plain = [output.token_ids for output in llm.generate(prompts, SamplingParams(temperature=0, max_tokens=NEW))]
    disliked = plain[0][0]
    params = SamplingParams(
        temperature=0, max_tokens=NEW, ignore_eos=True, repetition_penalty=1.3, logit_bias={disliked: -8.0}
    )
    got = [list(output.token_ids) for output in llm.generate(prompts, params)]
    expected = [
        generate(reference, prompt, eos_token_id=None, repetition_penalty=1.3, sequence_bias={(disliked,): -8.0})[0]
        for prompt in prompts
    ]
    assert got == expected
    assert got != [list(tokens) for tokens in plain]
