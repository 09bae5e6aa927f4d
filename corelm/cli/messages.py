"""What the command says to people."""

import logging
import sys
from collections.abc import Sequence

from corelm import __version__
from corelm.contracts.executor import ExecutorInfo
from corelm.contracts.frontend import ModelCard


def set_up_logging(level: str) -> None:
    """Log to stderr from `level` on."""
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True)


def print_error(error: BaseException) -> None:
    """One line on stderr for each problem that `error` names."""
    for line in str(error).splitlines() or [type(error).__name__]:
        sys.stderr.write(f"corelm: error: {line}\n")


def banner(info: ExecutorInfo, model: ModelCard, *, executor: str, scheduler: str, url: str | None) -> str:
    """What is being served, and how."""
    rows = {
        "model": ", ".join(model.names),
        "executor": f"{executor} on {info.device}, {info.dtype}",
        **info.details,
        "KV cache": f"{info.num_blocks * info.block_size} tokens",
        "max length": f"{model.max_model_len} tokens",
        "scheduler": scheduler,
    }
    if url is not None:
        rows["URL"] = url
    width = max(map(len, rows))
    return "\n".join([f"corelm {__version__} is ready", *(f"  {name:<{width}}  {text}" for name, text in rows.items())])


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text under a header."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
