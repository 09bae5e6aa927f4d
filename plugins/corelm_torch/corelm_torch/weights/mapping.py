"""Checkpoint files as arrays of bytes, read from disk where they are looked at."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from corelm.api import ModelLoadError


def map_file(path: Path) -> npt.NDArray[np.uint8]:
    """The bytes of the file. Raises `ModelLoadError`."""
    try:
        # Copy-on-write, because torch warns of arrays that it could not write to.
        return np.memmap(path, mode="c").view(np.ndarray)
    except OSError as error:
        raise ModelLoadError(f"cannot read {path}: {error.strerror or error}") from error
