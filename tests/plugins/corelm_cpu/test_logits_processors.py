"""Logits processors through the executor."""

import pytest

from corelm.api import LogitsProcessor


class Sum(LogitsProcessor):
    """Prefers tokens near the sum of all tokens so far, times the argument; so every token before one matters."""

    def check(self, argument):
        """Takes any number."""

    def apply(self, logits, rows):
        for number, row in enumerate(rows):
            if row.argument == "raise":
                raise ValueError("as it was told")
            logits[number, (sum(row.token_ids) * row.argument + row.prompt_len) % logits.shape[1]] += 4.0


SAMPLED = {"temperature": 1.0, "seed": 5, "logits_processors": {"sum": 3}}


@pytest.fixture
def driver(drive):
    return drive("llama", logits_processors={"sum": Sum()})


def test_the_executor_says_that_it_can(driver):
    assert "logits_processors" in driver.info.capabilities


def test_in_a_mixed_batch_each_gets_what_it_gets_alone(driver, prompt):
    kinds = [{}, SAMPLED, {"temperature": 1.0}, SAMPLED | {"logits_processors": {"sum": 7}}, {"bad_words": [[3]]}]
    alone = [driver.generate(prompt(9 + i, i), tokens=8, **kind)[0] for i, kind in enumerate(kinds)]
    assert alone[1] != driver.generate(prompt(10, 1), tokens=8, **SAMPLED | {"logits_processors": {}})[0]
    starts = [driver.start(prompt(9 + i, i), **kind) for i, kind in enumerate(kinds)]
    slices = [driver.slice(start.seq_id, 0, len(start.token_ids)) for start in starts]
    outputs = [list(new) for new in driver.step(*slices, started=starts).token_ids]
    for count in range(7):
        slices = [driver.slice(start.seq_id, len(start.token_ids) + count, 1) for start in starts]
        for output, new in zip(outputs, driver.step(*slices).token_ids, strict=True):
            output += new
    assert outputs == alone


@pytest.mark.parametrize("interrupted_after", [1, 6])
def test_a_preempted_sequence_goes_on_as_if_nothing_had_been(driver, prompt, interrupted_after):
    tokens = prompt(13)
    expected = driver.generate(tokens, tokens=12, **SAMPLED)[0]
    known = tokens + expected[:interrupted_after]
    again = driver.start(known, prompt_len=13, **SAMPLED)
    known += driver.step(driver.slice(again.seq_id, 0, len(known)), started=[again]).token_ids[0]
    while len(known) < 13 + 12:
        known += driver.step(driver.slice(again.seq_id, len(known) - 1, 1)).token_ids[0]
    assert known[13:] == expected


def test_a_processor_that_raises_fails_its_sequence_alone(driver, prompt):
    starts = [driver.start(prompt(5)), driver.start(prompt(5), logits_processors={"sum": "raise"})]
    starts.append(driver.start(prompt(5), **SAMPLED))
    result = driver.step(*(driver.slice(start.seq_id, 0, 5) for start in starts), started=starts)
    assert result.errors == {starts[1].seq_id: "logits processor 'sum' failed: ValueError: as it was told"}
    expected = [driver.generate(prompt(5), tokens=1)[0], [], driver.generate(prompt(5), tokens=1, **SAMPLED)[0]]
    assert result.token_ids == expected


def test_released_sequences_leave_nothing_behind(drive, prompt):
    driver = drive("llama", max_num_seqs=1, logits_processors={"sum": Sum()})
    expected = driver.generate(prompt(8), tokens=4)
    driver.generate(prompt(8), tokens=4, **SAMPLED)
    assert driver.generate(prompt(8), tokens=4) == expected
