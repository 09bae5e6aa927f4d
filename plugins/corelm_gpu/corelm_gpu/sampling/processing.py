"""Logits processors, which run on the host: the rows that use them go there and come back."""

from dataclasses import replace

import numpy as np
import torch
from corelm_torch.details import Details


def process_rows(logits: torch.Tensor, details: Details) -> dict[int, str]:
    """Let processors edit their rows of `logits` [R, vocabulary]; waits for these.

    Returns by detailed row why a processor failed.
    """
    users = np.unique(np.concatenate([processing.indices for processing in details.processing]))
    rows = torch.from_numpy(details.indices[users]).to(logits.device)
    processed = logits[rows].cpu().numpy()
    failed: dict[int, str] = {}
    # What processors do is their own, and may need gradients.
    with torch.inference_mode(False):
        for processing in details.processing:
            places = np.searchsorted(users, processing.indices)
            failed |= replace(processing, indices=places).apply(processed)
    logits[rows] = torch.from_numpy(processed).to(logits.device)
    return {int(users[place]): why for place, why in failed.items()}
