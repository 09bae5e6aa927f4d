"""Models of transformers, with their weights or without."""

import copy
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.utils.logging import set_tqdm_hook

from corelm.api import ModelLoadError, Progress
from corelm_torch.models.transformers_attention import PAGED

_AUTO: Any = AutoModelForCausalLM
"""What it returns depends on its arguments, which its annotations do not say."""
_NAMES_IN_MESSAGE = 5


def empty_model(config: PreTrainedConfig, *, dtype: torch.dtype, **implementations: str) -> PreTrainedModel:
    """A model without memory for its weights. `implementations` are those of its attention and experts."""
    with torch.device("meta"):
        model: PreTrainedModel = _AUTO.from_config(copy.deepcopy(config), dtype=dtype, **implementations)
    model.train(False)
    return model


def load_model(
    path: Path, config: PreTrainedConfig, *, dtype: torch.dtype, device: torch.device, progress: Progress
) -> PreTrainedModel:
    """A model with the weights in `path`, and paged attention.

    Raises `ModelLoadError` if they cannot be read, or are not exactly those that the model needs.
    """
    model: PreTrainedModel
    try:
        with _told(progress):
            model, report = _AUTO.from_pretrained(
                path,
                config=config,
                attn_implementation=PAGED,
                dtype=dtype,
                device_map=device,
                local_files_only=True,
                use_safetensors=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    except Exception as error:  # of the many layers below, each has its own
        raise ModelLoadError(f"{path}: transformers cannot load the weights: {error}") from error
    for problem, names in report.items():
        _check_none(path, problem.replace("_", " "), names)
    return model


def _check_none(path: Path, problem: str, names: Collection[Any]) -> None:
    """`names` are those of tensors, perhaps with their shapes, or error messages."""
    if names:
        some = ", ".join(sorted(map(str, names))[:_NAMES_IN_MESSAGE])
        raise ModelLoadError(f"{path}: the weights do not fit the model; {len(names)} {problem}: {some}")


@contextmanager
def _told(progress: Progress) -> Iterator[None]:
    """Within this block, transformers' progress goes to `progress`, and not to the terminal."""

    def counted(bar: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return _count(arguments[0], progress) if arguments else bar(**options)

    before = set_tqdm_hook(counted)
    try:
        yield
    finally:
        set_tqdm_hook(before)


def _count(items: Collection[Any], progress: Progress) -> Iterator[Any]:
    for done, item in enumerate(items):
        progress(done / len(items), "reading the weights")
        yield item
