"""What the comparison needs to know of an engine."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from process import Command

WORKERS = Path(__file__).parents[1] / "workers"


@dataclass(frozen=True)
class Place:
    """Where things are on this machine."""

    home: Path
    """The folder that the peers are installed into."""
    model: Path
    """The GGUF file."""

    @property
    def exported(self) -> Path:
        """The same weights and tokenizer as a directory for what cannot read GGUF."""
        return self.home / "model"


@dataclass(frozen=True)
class Engine:
    """How to install and start one. `server` is the reason if it brings none."""

    name: str
    install: Callable[[Place], None]
    worker: Callable[[Place], Command]
    server: Callable[[Place, int], Command] | str
    """The command for a port, with the OpenAI API."""
    served_model: Callable[[Place], str] = lambda place: place.model.stem
    """The name of the model in its API."""
