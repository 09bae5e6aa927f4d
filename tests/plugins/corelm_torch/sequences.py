"""Sequences in a table, ready for their next token to be sampled."""

import numpy as np
from corelm_torch.batch import Batch, SequenceTable
from corelm_torch.outputs import HeadOutputs
from corelm_torch.step import sample_tokens

from corelm.api import SamplingParams, SequenceSlice, SequenceStart, StepPlan
from corelm.testing import mask_of

VOCABULARY = 50
BLOCK_SIZE = 4


def random_tokens(length, seed=0):
    """Token ids with many repetitions."""
    return np.random.default_rng(seed).integers(0, VOCABULARY // 2, length).tolist()


def random_logits(rows, seed=0, vocabulary=VOCABULARY):
    """Normally distributed logits."""
    return np.random.default_rng(seed).standard_normal((rows, vocabulary), np.float32) * 3


class Sequences:
    """A table of sequences, of which every step samples the next token."""

    def __init__(self, vocabulary=VOCABULARY, logits_processors=None):
        self.table = SequenceTable(
            rows=16,
            max_model_len=200,
            block_size=BLOCK_SIZE,
            padding_block=9999,
            vocab_size=vocabulary,
            logits_processors=logits_processors or {},
        )
        self.vocabulary = vocabulary
        self.lengths = {}
        self.allowed = {}
        """The tokens that a grammar allows next, by sequence."""
        self.with_blocks = set()
        self.batch: Batch | None = None

    def add(self, token_ids, prompt_len=None, bad_words=(), end_token_ids=(), **sampling):
        """Add a sequence that is greedy unless told otherwise; returns its id."""
        seq_id = len(self.lengths)
        start = SequenceStart(
            seq_id=seq_id,
            token_ids=list(token_ids),
            prompt_len=len(token_ids) if prompt_len is None else prompt_len,
            sampling=SamplingParams(**{"seed": seq_id, "temperature": 0.0} | sampling),
            bad_words=bad_words,
            end_token_ids=end_token_ids,
        )
        self.table.apply(StepPlan(step_id=0, started=(start,)))
        self.lengths[seq_id] = len(token_ids)
        return seq_id

    def next_step(self):
        """The batch that samples the next token of every sequence."""
        slices = []
        for seq_id, length in self.lengths.items():
            blocks = () if seq_id in self.with_blocks else tuple(range(50))
            mask = mask_of(self.allowed[seq_id], self.vocabulary) if seq_id in self.allowed else None
            options = {"num_tokens": 1, "new_block_ids": blocks, "sample": True, "allowed": mask}
            slices.append(SequenceSlice(seq_id=seq_id, start=length - 1, **options))
        self.with_blocks |= self.lengths.keys()
        self.batch = self.table.apply(StepPlan(step_id=0, slices=tuple(slices)))
        return self.batch

    def append(self, token_ids):
        """Append a token to every sequence, after `next_step`."""
        self.table.append(self.batch, np.array(token_ids))
        self.lengths = {seq_id: length + 1 for seq_id, length in self.lengths.items()}

    def sample(self, logits):
        """What the next step samples from `logits`, a row for each sequence, and the logits it was sampled from."""
        batch, edited = self.next_step(), logits.copy()
        outputs = HeadOutputs(batch, logits, np.copy, np.asarray)
        sampled = sample_tokens(batch, outputs)
        edited[batch.detailed] = outputs.logits
        return sampled, edited

    def edited(self, logits):
        """`logits` after the edits of the next step."""
        return self.sample(logits)[1]
