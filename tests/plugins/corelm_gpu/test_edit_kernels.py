import numpy as np
import pytest
import torch
from corelm_gpu.kernels import penalise as penalties
from corelm_gpu.kernels.penalise import penalise, penalise_reference
from corelm_gpu.kernels.token_mask import apply_mask
from corelm_torch.penalties import PenaltyEdit
from gpu_kernels import DEVICE, ints, random

ROUNDING = 1e-6
"""Devices round quotients less well than the interpreter, and sums of products once."""


@pytest.mark.parametrize("count", [0, 1, 70])
def test_penalties(count, monkeypatch):
    monkeypatch.setattr(penalties, "LOGITS", 32)
    logits, rows = random(5, 60, dtype=torch.float32), ints([0, 3, 4])
    places = torch.randperm(3 * 60, device=DEVICE)[:count].int()
    strengths = torch.rand(3, count, device=DEVICE) + 0.5
    wanted = penalise_reference(logits, rows, places, *strengths)
    penalise(logits, rows, places, *strengths).run()
    torch.testing.assert_close(logits, wanted, rtol=ROUNDING, atol=ROUNDING)


def test_penalties_are_those_of_the_host():
    generator = np.random.default_rng(2)
    logits = generator.standard_normal((3, 50)).astype(np.float32)
    repetition, frequency, presence = generator.uniform(0.5, 2, (3, 40)).astype(np.float32)
    counts = generator.integers(0, 3, 40).astype(np.float32)
    places = generator.choice(150, 40, replace=False)
    edit = PenaltyEdit(places=places, counts=counts, repetition=repetition, frequency=frequency, presence=presence)
    strengths = [repetition, frequency * counts, presence * (counts > 0)]
    found = torch.from_numpy(logits.copy()).to(DEVICE)
    tensors = [torch.from_numpy(values).to(DEVICE) for values in (places.astype(np.int32), *strengths)]
    penalise(found, ints([0, 1, 2]), *tensors).run()
    edit.apply(logits)
    np.testing.assert_allclose(found.cpu().numpy(), logits, rtol=ROUNDING, atol=ROUNDING)


def test_what_is_not_finite_stays_so_under_a_mask():
    logits = torch.tensor([[1.0, torch.nan, torch.inf, -torch.inf, 2.0]], device=DEVICE)
    apply_mask(logits, ints([0]), ints([[1]])).run()
    assert logits[0].isnan().tolist() == [False, True, True, False, False]
    assert logits[0, [0, 3, 4]].tolist() == [1.0, -torch.inf, -torch.inf]
