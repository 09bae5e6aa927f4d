"""Files that are there whole or not at all."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

TEMPORARY = ".tmp"
"""How the name of a file ends that is being written, or that a process which died has left."""


def replace_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Make a file, or a new one of it, whatever other processes do with it. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=TEMPORARY)
    temporary = Path(name)
    try:
        with open(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
