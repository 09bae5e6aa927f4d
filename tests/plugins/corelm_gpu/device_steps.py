"""Steps whose tokens are sampled on the device and, from the same logits, on the host."""

import numpy as np
import torch
from corelm_gpu.sampling import DeviceSampler
from corelm_torch import sampler
from corelm_torch.outputs import HeadOutputs
from corelm_torch.sampler import uniform
from corelm_torch.step import sample_tokens
from gpu_kernels import DEVICE
from sequences import Sequences

ROUNDING = 1e-5
"""How far the device's sums in float32 may lie from the host's, as a share of the total."""


def step_of(kinds, history, vocabulary, processors=None):
    """A batch that samples for a sequence of each kind, whose option `grammar` names the tokens that may come."""
    sequences = Sequences(vocabulary=vocabulary, logits_processors=processors)
    for seed, kind in enumerate(kinds):
        options = {name: value for name, value in kind.items() if name != "grammar"}
        sequences.add(history, prompt_len=len(history) // 2, **{"seed": seed} | options)
        if "grammar" in kind:
            sequences.allowed[seed] = kind["grammar"]
    return sequences.next_step()


def on_device(batch, logits):
    """What the device samples, and the tokens that it keeps."""
    device_sampler = DeviceSampler(vocab_size=logits.shape[1], device=DEVICE)
    sampling = device_sampler.sample(torch.from_numpy(logits.copy()).to(DEVICE), batch)
    return sampling.wait(), sampling.token_ids.cpu().numpy()


def on_host(batch, logits):
    return sample_tokens(batch, HeadOutputs(batch, logits.copy(), np.copy, np.asarray))


def possible(batch, logits, monkeypatch):
    """What the host samples with numbers that differ by rounding: a set of tokens for each row."""
    draws = []
    for shift in (-ROUNDING, 0.0, ROUNDING):
        numbers = lambda *key, shift=shift: np.clip(uniform(*key) + shift, 0, 1 - 1e-9)  # noqa: E731
        monkeypatch.setattr(sampler, "uniform", numbers)
        draws.append(on_host(batch, logits).token_ids)
    monkeypatch.undo()
    return [set(column) for column in np.transpose(draws).tolist()]
