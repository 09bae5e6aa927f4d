"""corelm: an LLM serving engine that people extend instead of fork.

For users of the library: `LLM`, `create_engine`, `SamplingParams`, `BeamSearch`, `StructuredOutput`, `Chat`,
`RequestOptions`, `RequestOutput`, `Embedding`. For authors of plugins: `corelm.api`.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from corelm.assembly import create_engine
    from corelm.contracts.frontend import RequestOptions
    from corelm.contracts.tokenizer import Chat
    from corelm.engine.async_engine import AsyncEngine
    from corelm.llm import LLM
    from corelm.outputs import Embedding, RequestOutput
    from corelm.sampling import BeamSearch, SamplingParams, StructuredOutput

__all__ = [
    "LLM",
    "AsyncEngine",
    "BeamSearch",
    "Chat",
    "Embedding",
    "RequestOptions",
    "RequestOutput",
    "SamplingParams",
    "StructuredOutput",
    "__version__",
    "create_engine",
]

_HOMES = {
    "LLM": "corelm.llm",
    "AsyncEngine": "corelm.engine.async_engine",
    "BeamSearch": "corelm.sampling",
    "Chat": "corelm.contracts.tokenizer",
    "Embedding": "corelm.outputs",
    "RequestOptions": "corelm.contracts.frontend",
    "RequestOutput": "corelm.outputs",
    "SamplingParams": "corelm.sampling",
    "StructuredOutput": "corelm.sampling",
    "create_engine": "corelm.assembly",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that ``corelm --help`` need not wait for what it does not use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'corelm' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
