"""Log-probabilities of sampled and of prompt tokens."""

import math

import pytest
import torch
from corelm_torch.step import SCORED_ROWS


def assert_scores(scores, token_ids, logits, top):
    """`logits` [tokens, vocabulary] are transformers' that predict `token_ids`."""
    reference = torch.log_softmax(logits.double(), -1)
    near = 2e-4 * float(logits.abs().max())
    assert [score.token_id for score in scores] == token_ids
    for score, row in zip(scores, reference, strict=True):
        assert score.logprob == pytest.approx(float(row[score.token_id]), abs=near)
        assert score.top_logprobs == pytest.approx(row.topk(top).values.tolist(), abs=near)
        assert row[list(score.top_ids)].tolist() == pytest.approx(score.top_logprobs, abs=near)
        better, not_worse = ((row > score.logprob + bound).sum() for bound in (near, -near))
        assert better < score.rank <= not_worse


def score_prompt(driver, tokens, chunk, neighbours=(), **sampling):
    """The log-probabilities of a prompt that is computed in chunks, the first one beside other sequences."""
    first = driver.start(tokens, prompt_logprobs=3, **sampling)
    others = [driver.start(other) for other in neighbours]
    slices = [driver.slice(other.seq_id, 0, len(other.token_ids)) for other in others]
    started, found = [*others, first], []
    for position in range(0, len(tokens), chunk):
        count = min(chunk, len(tokens) - position)
        slices.append(driver.slice(first.seq_id, position, count, sample=position + count == len(tokens)))
        result = driver.step(*slices, started=started)
        assert result.prompt_logprobs.keys() <= {first.seq_id}
        found += result.prompt_logprobs.get(first.seq_id, [])
        slices, started = [], []
    driver.step(released=[first.seq_id, *(other.seq_id for other in others)])
    return found


def test_sampled_tokens(drive, tiny_model, prompt, model_name):
    driver, known, scores = drive(model_name), prompt(23), []
    start = driver.start(known, logprobs=4, temperature=1.7, repetition_penalty=1.4, bad_words=[[3]])
    plain = driver.start([1, 2, 3])
    result = driver.step(driver.slice(plain.seq_id, 0, 3), driver.slice(start.seq_id, 0, 23), started=[plain, start])
    for position in range(23, 29):
        known += result.token_ids[1]
        assert list(result.logprobs) == [start.seq_id]
        scores += result.logprobs[start.seq_id]
        result = driver.step(driver.slice(plain.seq_id, position - 20, 1), driver.slice(start.seq_id, position, 1))
    assert_scores(scores, known[23:], tiny_model(model_name).logits(known)[22:-1], 4)


def test_prompt_tokens(drive, tiny_model, prompt, model_name):
    tokens = prompt(40)
    scores = score_prompt(drive(model_name), tokens, 1000)
    assert_scores(scores, tokens[1:], tiny_model(model_name).logits(tokens)[:-1], 3)


@pytest.mark.parametrize("chunk", [1, 7, 16, 64])
def test_bits_do_not_depend_on_chunks_and_neighbours(drive, prompt, chunk):
    tokens, driver = prompt(150), drive("llama")
    whole = score_prompt(driver, tokens, 1000)
    assert len(whole) == 149
    assert score_prompt(driver, tokens, chunk) == whole
    assert score_prompt(driver, tokens, chunk, [prompt(9, 1), prompt(130, 2)], logprobs=1) == whole


def test_bfloat16(drive, tiny_model, prompt):
    tokens = prompt(60)
    scores = score_prompt(drive("llama", dtype="bfloat16"), tokens, 16)
    reference = torch.log_softmax(tiny_model("llama").logits(tokens), -1)
    found = torch.tensor([score.logprob for score in scores])
    expected = reference[torch.arange(59), torch.tensor(tokens[1:])]
    assert (found - expected).norm() / expected.norm() < 0.05


def test_output_is_not_scored_as_prompt(drive, prompt):
    """A sequence that comes back has output tokens among those it starts with."""
    tokens, driver = prompt(30), drive("llama")
    start = driver.start(tokens, prompt_len=20, prompt_logprobs=0)
    result = driver.step(driver.slice(start.seq_id, 0, 25, sample=False), started=[start])
    assert [score.token_id for score in result.prompt_logprobs[start.seq_id]] == tokens[1:20]
    assert driver.step(driver.slice(start.seq_id, 25, 5)).prompt_logprobs == {}


@pytest.mark.usefixtures("plugins_layers")
def test_a_long_prompt_needs_the_logits_of_a_few_tokens_at_a_time(drive, prompt, monkeypatch):
    driver, rows = drive("llama"), []
    runner, head = driver.executor._runner, driver.executor._runner.head
    monkeypatch.setattr(runner, "head", lambda hidden: rows.append(len(hidden)) or head(hidden))
    assert len(score_prompt(driver, prompt(400), 1000)) == 399
    recorded = [1, 400]  # by the driver, not by the executor
    assert rows == [*recorded, 1, SCORED_ROWS, SCORED_ROWS, SCORED_ROWS, 399 - 3 * SCORED_ROWS]
    rows.clear()
    driver.generate(prompt(300), tokens=1)
    assert rows == [1, 300, 1]


def test_a_prompt_without_finite_scores_fails_alone(drive_each, prompt):
    healthy, sick = [[token % 150 for token in prompt(length)] for length in (20, 21)]
    sick[4] = 159
    driver = drive_each("even widths")
    driver.spoil(159, math.nan)
    starts = [driver.start(tokens, prompt_logprobs=1) for tokens in (healthy, sick)]
    slices = [driver.slice(start.seq_id, 0, 18, sample=False) for start in starts]
    result = driver.step(*slices, started=starts)
    assert list(result.errors) == [starts[1].seq_id]
    assert len(result.prompt_logprobs[starts[0].seq_id]) == 18
