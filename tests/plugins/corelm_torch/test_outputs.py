"""What a step computed, as sampling takes it."""

import numpy as np
from corelm_torch.outputs import HeadOutputs
from sequences import Sequences


def test_the_head_computes_no_row_twice():
    def head(hidden):
        asked.append(hidden.ravel().tolist())
        return np.tile(hidden, 3) + np.arange(3, dtype=np.float32)

    asked = []
    sequences = Sequences()
    for options in ({}, {"temperature": 1.0}, {}):
        sequences.add([1, 2, 3], **options)
    hidden = np.arange(8, dtype=np.float32)[:, None]
    outputs = HeadOutputs(sequences.next_step(), hidden, head, np.asarray)
    assert outputs.best.tolist() == [2, 2, 2]
    assert outputs.logits.tolist() == [[1, 2, 3]]
    assert outputs.score(slice(1, 3)).tolist() == [[4, 5, 6], [5, 6, 7]]
    assert asked == [[0, 1, 2], [4, 5]]


def test_the_hidden_states_behind_those_for_logits_are_for_embeddings():
    sequences = Sequences()
    sequences.add([1, 2, 3])
    hidden = np.arange(3, dtype=np.float16)[:, None]
    outputs = HeadOutputs(sequences.next_step(), hidden, lambda rows: np.tile(rows, 3), lambda rows: rows.astype("f4"))
    assert outputs.hidden.tolist() == [[1], [2]]
    assert outputs.hidden.dtype == np.float32
