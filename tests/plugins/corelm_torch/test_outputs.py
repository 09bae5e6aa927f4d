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
    outputs = HeadOutputs(sequences.next_step(), hidden, head)
    assert outputs.best.tolist() == [2, 2, 2]
    assert outputs.logits.tolist() == [[1, 2, 3]]
    assert outputs.score(slice(1, 3)).tolist() == [[4, 5, 6], [5, 6, 7]]
    assert asked == [[0, 1, 2], [4, 5]]
