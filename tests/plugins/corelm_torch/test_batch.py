"""Plans become flattened arrays."""

import numpy as np
import pytest
from corelm_torch.batch import UNKNOWN, SequenceTable

from corelm.api import SamplingParams, SequenceSlice, SequenceStart, StepPlan

PADDING = 99


@pytest.fixture
def table():
    return SequenceTable(rows=3, max_model_len=40, block_size=4, padding_block=PADDING, vocab_size=1000)


def start(seq_id, token_ids, prompt_len=None, *, embed=False, **sampling):
    params, length = SamplingParams(**{"seed": 5} | sampling), prompt_len or len(token_ids)
    return SequenceStart(seq_id=seq_id, token_ids=token_ids, prompt_len=length, sampling=params, embed=embed)


def piece(seq_id, first, count, *blocks, sample=True):
    return SequenceSlice(seq_id=seq_id, start=first, num_tokens=count, new_block_ids=blocks, sample=sample)


def plan(*slices, started=(), released=()):
    return StepPlan(step_id=0, slices=slices, started=tuple(started), released=tuple(released))


def test_a_mixed_step(table):
    table.apply(plan(piece(1, 0, 5, 8, 3), started=[start(1, [10, 11, 12, 13, 14])]))
    batch = table.apply(
        plan(
            piece(2, 0, 6, 20, 7, sample=False),
            piece(1, 4, 1),
            started=[start(2, list(range(50, 59))), start(3, [1])],
        )
    )
    assert batch.token_ids.tolist() == [50, 51, 52, 53, 54, 55, 14]
    assert batch.positions.tolist() == [0, 1, 2, 3, 4, 5, 4]
    assert batch.slots.tolist() == [80, 81, 82, 83, 28, 29, 12]
    assert batch.starts.tolist() == [0, 4]
    assert batch.ends.tolist() == [6, 5]
    assert batch.block_tables.tolist() == [[20, 7], [8, 3]]
    assert batch.sampled.tolist() == [1]
    assert batch.last_rows.tolist() == [6]
    assert batch.fresh_blocks.tolist() == [20, 7]


def test_sampled_tokens_are_appended(table):
    batch = table.apply(plan(piece(1, 0, 2, 0), piece(2, 0, 1, 1), started=[start(1, [5, 6]), start(2, [7])]))
    table.append(batch, np.array([70, 80]))
    batch = table.apply(plan(piece(2, 1, 1), piece(1, 2, 1)))
    assert batch.token_ids.tolist() == [80, 70]
    assert batch.details.sampling.index.tolist() == [1, 1]


def test_a_sequence_that_failed_has_a_token_to_go_on_with(table):
    batch = table.apply(plan(piece(1, 0, 1, 0), started=[start(1, [5])]))
    table.append(batch, np.array([-1]))
    assert table.apply(plan(piece(1, 1, 1))).token_ids.tolist() == [0]


def test_tokens_may_be_told_a_step_later(table):
    first = table.apply(plan(piece(1, 0, 1, 0), piece(2, 0, 1, 1), started=[start(1, [5]), start(2, [6])]))
    second = table.apply(plan(piece(1, 1, 1), piece(3, 0, 2, 2), started=[start(3, [7, 8])]))
    assert second.token_ids.tolist() == [UNKNOWN, 7, 8]
    assert second.token_rows.tolist() == [first.table_rows[0], *[second.table_rows[1]] * 2]
    table.append(first, np.array([50, 60]))
    third = table.apply(plan(piece(2, 1, 1), piece(1, 2, 1)))
    assert third.token_ids.tolist() == [60, UNKNOWN]
    table.append(second, np.array([51, 70]))
    assert table.apply(plan(piece(1, 2, 1))).token_ids.tolist() == [51]


def test_tokens_of_a_sequence_that_was_released_reach_nobody(table):
    first = table.apply(plan(piece(1, 0, 1, 0), started=[start(1, [5], presence_penalty=1.0)]))
    table.apply(plan(released=[1]))
    second = table.apply(plan(piece(1, 0, 2, 0), started=[start(1, [5, 9], 1, presence_penalty=1.0)]))
    assert second.table_rows.tolist() == first.table_rows.tolist()
    table.append(first, np.array([7]))
    table.append(second, np.array([8]))
    batch = table.apply(plan(piece(1, 2, 1)))
    assert batch.token_ids.tolist() == [8]
    (edit,) = batch.details.edits
    assert sorted(edit.places.tolist()) == [8, 9]


@pytest.mark.parametrize(
    ("sampling", "bad_words", "waits"),
    [
        ({}, (), False),
        ({"temperature": 1.0, "top_p": 0.5, "logprobs": 3, "logit_bias": {4: 1.0}}, ((3,),), False),
        ({"repetition_penalty": 1.1}, (), True),
        ({"frequency_penalty": 0.1}, (), True),
        ({"logits_processors": {"any": None}}, (), True),
        ({}, ((3, 4),), True),
    ],
)
def test_edits_that_depend_on_the_last_token_wait_for_it(table, sampling, bad_words, waits):
    def begun(seq_id, **options):
        params = SamplingParams(seed=5, **options)
        words = bad_words if seq_id == 1 else ()
        return SequenceStart(seq_id=seq_id, token_ids=[5], prompt_len=1, sampling=params, bad_words=words)

    first = table.apply(
        plan(piece(1, 0, 1, 0), piece(2, 0, 1, 1), started=[begun(1, **sampling), begun(2), begun(3, **sampling)])
    )
    assert not table.waits(plan(piece(2, 1, 1), piece(3, 0, 1, 2)))
    assert table.waits(plan(piece(2, 1, 1), piece(1, 1, 1))) == waits
    assert not table.waits(plan(piece(1, 1, 1, sample=False)))
    table.append(first, np.array([7, 8]))
    assert not table.waits(plan(piece(1, 1, 1)))


def test_parts_of_slices_can_be_computed_by_themselves(table):
    whole = table.apply(plan(piece(1, 0, 6, 4, 5), piece(2, 0, 1, 6), started=[start(1, [*range(6)]), start(2, [9])]))
    parts = [table.build((piece(1, 0, 3, sample=False),)), table.build((piece(1, 3, 3), piece(2, 0, 1)))]
    for name in ("token_ids", "positions", "slots"):
        assert np.concatenate([getattr(part, name) for part in parts]).tolist() == getattr(whole, name).tolist()
    assert [part.sampled.tolist() for part in parts] == [[], [0, 1]]


def test_chunks_of_a_prompt(table):
    tokens = list(range(30))
    seen, blocks = [], iter(range(10))
    for first in range(0, 30, 7):
        count = min(7, 30 - first)
        needed = [next(blocks) for _ in range(-(-(first + count) // 4) - -(-first // 4))]
        batch = table.apply(
            plan(piece(1, first, count, *needed, sample=False), started=[] if first else [start(1, tokens)])
        )
        seen += zip(batch.token_ids.tolist(), batch.slots.tolist(), strict=True)
    assert seen == [(token, token) for token in tokens]


def test_shorter_block_tables_are_padded(table):
    batch = table.apply(plan(piece(1, 0, 9, 0, 1, 2), piece(2, 0, 1, 5), started=[start(1, [0] * 9), start(2, [1])]))
    assert batch.block_tables.tolist() == [[0, 1, 2], [5, PADDING, PADDING]]


def test_released_rows_are_reused_and_forgotten(table):
    table.apply(plan(piece(1, 0, 12, 0, 1, 2), started=[start(1, list(range(12)), temperature=0.0)]))
    for seq_id in range(2, 20):
        batch = table.apply(
            plan(
                piece(seq_id, 0, 2, 30),
                started=[start(seq_id, [seq_id, 0], temperature=0.5)],
                released=[seq_id - 1, 12345],
            )
        )
        assert batch.token_ids.tolist() == [seq_id, 0]
        assert batch.block_tables.tolist() == [[30]]
        assert batch.details.sampling.temperature.tolist() == [0.5]


def test_a_sequence_that_comes_back_counts_its_output(table):
    batch = table.apply(plan(piece(9, 0, 7, 1, 2), started=[start(9, [1, 2, 3, 4, 5, 6, 7], prompt_len=3)]))
    assert batch.details.sampling.index.tolist() == [4]


def test_blocks_that_hold_a_computed_prefix_are_not_fresh(table):
    batch = table.apply(plan(piece(1, 8, 4, 4, 5, 6, 7), started=[start(1, list(range(12)))]))
    assert batch.fresh_blocks.tolist() == [6, 7]
    batch = table.apply(plan(piece(2, 6, 4, 8, 9, 10), started=[start(2, list(range(12)))]))
    assert batch.fresh_blocks.tolist() == [10]


def test_no_slices(table):
    batch = table.apply(plan(started=[start(1, [1, 2])]))
    assert batch.token_ids.size == batch.sampled.size == batch.last_rows.size == 0


def test_sampling_parameters(table):
    sequences = [
        start(1, [1], temperature=0.7, top_k=5, top_p=0.9, min_p=0.1, seed=-1),
        start(2, [1], top_k=-1),
        start(3, [1], temperature=1e-9, logprobs=2),
    ]
    batch = table.apply(plan(*(piece(seq_id, 0, 1, seq_id) for seq_id in (3, 1, 2)), started=sequences))
    rows = batch.details.sampling
    assert rows.temperature.tolist() == pytest.approx([0.0, 0.7, 1.0])
    assert rows.top_k.tolist() == [0, 5, 0]
    assert rows.top_p.tolist() == [1.0, 0.9, 1.0]
    assert rows.min_p.tolist() == [0.0, 0.1, 0.0]
    assert rows.seed.tolist() == [5, 2**64 - 1, 5]
    assert rows.logprobs.tolist() == [2, -1, -1]


def test_greedy_rows_that_ask_for_nothing_else_are_not_detailed(table):
    """They need their most probable token alone."""
    asking = [{"temperature": 0.5}, {"logprobs": 0}, {"logit_bias": {3: 1.0}}, {"repetition_penalty": 1.5}]
    for options in asking:
        sequences = [start(1, [1, 2], temperature=0.0), start(2, [1, 2], **{"temperature": 0.0} | options)]
        slices = [piece(3, 0, 2, 3, sample=False), piece(1, 0, 2, 1), piece(2, 0, 2, 2)]
        batch = table.apply(plan(*slices, started=[*sequences, start(3, [1, 2], temperature=0.9)]))
        assert batch.sampled.tolist() == [1, 2]
        assert batch.detailed.tolist() == [1]
        table.apply(plan(released=[1, 2, 3]))


def test_greedy_rows_are_detailed_only_while_something_is_edited(table):
    sequence = start(1, [1, 2], temperature=0.0, frequency_penalty=0.5)
    batch = table.apply(plan(piece(1, 0, 2, 0), started=[sequence]))
    assert batch.detailed.tolist() == []
    table.append(batch, np.array([7]))
    assert table.apply(plan(piece(1, 2, 1))).detailed.tolist() == [0]


def test_the_longest_sequence_fits(table):
    batch = table.apply(plan(piece(1, 0, 40, *range(10)), started=[start(1, list(range(40)))]))
    table.append(batch, np.array([3]))
    assert batch.slots.tolist() == list(range(40))


def test_a_sequence_that_begins_within_a_block_finds_the_rest_of_it_stale(table):
    batch = table.apply(plan(piece(1, 6, 1, 9, 7, 8), started=[start(1, list(range(12)))]))
    assert batch.stale_slots.tolist() == [30, 31]
    assert batch.fresh_blocks.tolist() == [8]
    batch = table.apply(plan(piece(1, 7, 2), piece(2, 4, 1, 5, 6), started=[start(2, list(range(5)))]))
    assert batch.stale_slots.tolist() == []


def test_rows_to_be_scored(table):
    sequences = [
        start(1, list(range(20, 29)), prompt_len=7, prompt_logprobs=3),
        start(2, [5, 6, 7]),
        start(3, [5, 6, 7], prompt_logprobs=0),
    ]
    slices = [piece(1, 0, 4, 1, sample=False), piece(2, 0, 3, 4), piece(3, 0, 3, 5)]
    batch = table.apply(plan(*slices, started=sequences))
    assert batch.scored.rows.tolist() == [0, 1, 2, 3, 7, 8]
    assert batch.scored.token_ids.tolist() == [21, 22, 23, 24, 6, 7]
    assert batch.scored.top.tolist() == [3, 3, 3, 3, 0, 0]
    assert batch.scored.seq_ids.tolist() == [1, 1, 1, 1, 3, 3]
    assert batch.output_rows.tolist() == [6, 9, 0, 1, 2, 3, 7, 8]
    batch = table.apply(plan(piece(1, 4, 5, 2, 3), piece(2, 3, 1)))
    assert batch.scored.rows.tolist() == [0, 1]
    assert batch.scored.token_ids.tolist() == [25, 26]


def test_steps_that_score_nothing(table):
    batch = table.apply(
        plan(piece(1, 0, 3, 0), started=[start(1, [1, 2, 3]), start(2, [1, 2], prompt_logprobs=2, prompt_len=1)])
    )
    assert batch.scored is None
    batch = table.apply(plan(piece(2, 0, 2, 1)))
    assert batch.scored is None


def test_rows_to_be_embedded_end_a_prompt(table):
    sequences = [start(1, [1, 2, 3, 4, 5], embed=True), start(2, [6, 7]), start(3, [8, 9], embed=True)]
    slices = [piece(1, 0, 3, 0, sample=False), piece(2, 0, 2, 2), piece(3, 0, 2, 3, sample=False)]
    batch = table.apply(plan(*slices, started=sequences))
    assert (batch.embedded.tolist(), batch.embedded_rows.tolist()) == ([2], [6])
    assert batch.output_rows.tolist() == [4]
    batch = table.apply(plan(piece(2, 2, 1), piece(1, 3, 2, 1, sample=False), released=[3]))
    assert (batch.embedded.tolist(), batch.embedded_rows.tolist()) == ([1], [2])
    batch = table.apply(plan(piece(4, 0, 2, 3), started=[start(4, [8, 9])], released=[1]))  # in a row of one of them
    assert batch.embedded.tolist() == []
