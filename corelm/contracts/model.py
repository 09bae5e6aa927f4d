"""A model as plugins see it: a name and files on this machine."""

from pathlib import Path
from typing import Literal

import msgspec


class ResolvedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model whose files are on this machine."""

    name: str
    """What the user asked for; the default name the model is served under."""
    path: Path
    """A directory with ``config.json`` and weights, or one ``.gguf`` file."""
    format: Literal["huggingface", "gguf"]
