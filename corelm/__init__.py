"""corelm: an LLM serving engine that people extend instead of fork.

For users of the library: `LLM`, `create_engine`, `SamplingParams`, `BeamSearch`, `Chat`, `RequestOptions`,
`RequestOutput`. For authors of plugins: `corelm.api`.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from corelm.assembly import create_engine
    from corelm.contracts.frontend import RequestOptions
    from corelm.contracts.tokenizer import Chat
    from corelm.engine.async_engine import AsyncEngine
    from corelm.llm import LLM
    from corelm.outputs import RequestOutput
    from corelm.sampling import BeamSearch, SamplingParams

__all__ = [
    "LLM",
    "AsyncEngine",
    "BeamSearch",
    "Chat",
    "RequestOptions",
    "RequestOutput",
    "SamplingParams",
    "__version__",
    "create_engine",
]

_HOMES = {
    "LLM": "corelm.llm",
    "AsyncEngine": "corelm.engine.async_engine",
    "BeamSearch": "corelm.sampling",
    "Chat": "corelm.contracts.tokenizer",
    "RequestOptions": "corelm.contracts.frontend",
    "RequestOutput": "corelm.outputs",
    "SamplingParams": "corelm.sampling",
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
