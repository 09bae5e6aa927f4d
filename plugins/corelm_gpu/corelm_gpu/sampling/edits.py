"""Edits of logits on the device: what each of `corelm_torch`'s edits sends there, and does there."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from corelm_torch.arrays import Ints
from corelm_torch.details import Details
from corelm_torch.grammar_masks import GrammarEdit
from corelm_torch.penalties import PenaltyEdit
from corelm_torch.token_masks import MaskEdit

from corelm_gpu.kernels.penalise import penalise
from corelm_gpu.kernels.token_mask import apply_mask


class DeviceEdit(NamedTuple):
    """An edit of the logits [R, vocabulary]."""

    arrays: tuple[np.ndarray, ...]
    """What it needs on the device: integers, or the bits of floats as int32."""
    apply: Callable[..., None]
    """Called with the logits and, as int32, the arrays on the device."""


def device_edits(details: Details, vocab_size: int) -> list[DeviceEdit]:
    """The edits of a step, in their order."""
    return [_device_edit(edit, details.indices, vocab_size) for edit in details.edits]


def _device_edit(edit: GrammarEdit | MaskEdit | PenaltyEdit, indices: Ints, vocab_size: int) -> DeviceEdit:
    if isinstance(edit, GrammarEdit):
        return _grammar_edit(edit, indices)
    if isinstance(edit, MaskEdit):
        return _mask_edit(edit, indices, vocab_size)
    return _penalty_edit(edit, indices)


def _grammar_edit(edit: GrammarEdit, indices: Ints) -> DeviceEdit:
    masks = np.frombuffer(b"".join(edit.masks.values()), np.int32).reshape(len(edit.masks), -1)

    def apply(logits: torch.Tensor, rows: torch.Tensor, masks: torch.Tensor) -> None:
        apply_mask(logits, rows, masks).run()

    return DeviceEdit((indices[list(edit.masks)], masks), apply)


def _mask_edit(edit: MaskEdit, indices: Ints, vocab_size: int) -> DeviceEdit:
    def moved(places: Ints) -> Ints:
        """From the flattened logits of detailed rows to those of all."""
        rows = places // vocab_size
        return places + (indices[rows] - rows) * vocab_size

    def apply(
        logits: torch.Tensor,
        restricted: torch.Tensor,
        allowed: torch.Tensor,
        banned: torch.Tensor,
        biased: torch.Tensor,
        biases: torch.Tensor,
    ) -> None:
        flat = logits.view(-1)
        if len(restricted):
            places = allowed.long()
            kept = flat[places]
            logits.index_fill_(0, restricted.long(), -torch.inf)
            flat[places] = kept
        if len(banned):
            flat.index_fill_(0, banned.long(), -torch.inf)
        if len(biased):
            flat.index_add_(0, biased, biases.view(torch.float32))

    places = moved(edit.allowed), moved(edit.banned), moved(edit.biased)
    return DeviceEdit((indices[edit.restricted], *places, edit.biases.view(np.int32)), apply)


def _penalty_edit(edit: PenaltyEdit, indices: Ints) -> DeviceEdit:
    strengths = edit.repetition, edit.frequency * edit.counts, edit.presence * (edit.counts > 0)

    def apply(logits: torch.Tensor, rows: torch.Tensor, places: torch.Tensor, *strengths: torch.Tensor) -> None:
        repetitions, frequencies, presences = (each.view(torch.float32) for each in strengths)
        penalise(logits, rows, places, repetitions, frequencies, presences).run()

    return DeviceEdit((indices, edit.places, *(each.view(np.int32) for each in strengths)), apply)
