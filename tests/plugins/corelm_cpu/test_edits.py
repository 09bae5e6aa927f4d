"""Penalties, masks and biases through the executor."""

import pytest
import torch
from corelm_torch.step import ALL_MASKED
from transformers.generation.logits_process import LogitsProcessorList, NoBadWordsLogitsProcessor

EVERYTHING = {
    "temperature": 1.2,
    "top_p": 0.9,
    "seed": 5,
    "repetition_penalty": 1.3,
    "frequency_penalty": 0.5,
    "presence_penalty": -0.5,
    "logit_bias": {7: 3.0, 9: -2.0},
    "bad_words": [[7, 7], [11]],
    "end_token_ids": [0, 1, 2],
    "min_tokens": 12,
    "logprobs": 2,
}


def test_greedy_generation_equals_transformers(drive, tiny_model, prompt):
    """With what a random model likes to repeat."""
    tokens, bad = prompt(12), [[5], [6, 6], [3, 4, 5]]
    options = {"max_new_tokens": 30, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    expected = tiny_model("llama").reference.generate(
        torch.tensor([tokens]),
        **options,
        repetition_penalty=1.2,
        logits_processor=LogitsProcessorList([NoBadWordsLogitsProcessor(bad)]),
    )
    drawn = drive("llama").generate(tokens, tokens=30, repetition_penalty=1.2, bad_words=bad)[0]
    assert drawn == expected[0, 12:].tolist()


def test_edited_sequences_do_not_disturb_their_neighbours(drive, prompt):
    driver = drive("llama")
    plain, edited = driver.generate(prompt(9), tokens=8)[0], driver.generate(prompt(11, 1), tokens=8, **EVERYTHING)[0]
    starts = [driver.start(prompt(9)), driver.start(prompt(11, 1), **EVERYTHING), driver.start(prompt(9))]
    slices = [driver.slice(start.seq_id, 0, len(start.token_ids)) for start in starts]
    outputs = [list(new) for new in driver.step(*slices, started=starts).token_ids]
    for count in range(7):
        slices = [driver.slice(start.seq_id, len(start.token_ids) + count, 1) for start in starts]
        for output, new in zip(outputs, driver.step(*slices).token_ids, strict=True):
            output += new
    assert outputs == [plain, edited, plain]


@pytest.mark.parametrize("interrupted_after", [1, 5, 11])
def test_a_preempted_sequence_keeps_its_counts(drive, prompt, interrupted_after):
    tokens, driver = prompt(13), drive("llama")
    expected = driver.generate(tokens, tokens=20, **EVERYTHING)[0]
    assert expected != driver.generate(tokens, tokens=20, **EVERYTHING | {"frequency_penalty": 0.0})[0]
    known = tokens + expected[:interrupted_after]
    again = driver.start(known, prompt_len=13, **EVERYTHING)
    known += driver.step(driver.slice(again.seq_id, 0, len(known)), started=[again]).token_ids[0]
    while len(known) < 13 + 20:
        known += driver.step(driver.slice(again.seq_id, len(known) - 1, 1)).token_ids[0]
    assert known[13:] == expected


def test_masks_that_leave_nothing_fail_their_sequence_alone(drive, prompt):
    driver = drive("llama")
    starts = [driver.start(prompt(5)), driver.start(prompt(5), allowed_token_ids=(3,), bad_words=[[3]])]
    result = driver.step(*(driver.slice(start.seq_id, 0, 5) for start in starts), started=starts)
    assert result.errors == {starts[1].seq_id: ALL_MASKED}
    assert [len(new) for new in result.token_ids] == [1, 0]


def test_released_sequences_leave_no_edits_behind(drive, prompt):
    driver = drive("llama", max_num_seqs=1)
    expected = driver.generate(prompt(8), tokens=4)
    driver.generate(prompt(8), tokens=4, **EVERYTHING)
    assert driver.generate(prompt(8), tokens=4) == expected
