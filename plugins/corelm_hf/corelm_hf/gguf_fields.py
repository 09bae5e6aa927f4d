"""Typed access to the ``tokenizer.*`` fields of a GGUF file."""

from pathlib import Path
from typing import Any, TypeVar

from corelm_gguf.header import read_gguf_header

from corelm.api import ModelLoadError

ValueT = TypeVar("ValueT")

_ARRAYS = frozenset(f"tokenizer.ggml.{name}" for name in ("tokens", "token_type", "scores", "merges"))

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
"""Token types (``tokenizer.ggml.token_type``)."""


class Fields:
    """The fields, checked for their type when they are asked for; `ModelLoadError` names one of a wrong type."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._values: dict[str, Any] = read_gguf_header(path, arrays=_ARRAYS).metadata
        self.tokens = self.strings("tokenizer.ggml.tokens")
        """Texts in the order of their ids, as the file spells them."""
        self.types: list[int] = self._numbers("tokenizer.ggml.token_type", int) or [NORMAL] * len(self.tokens)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def text(self, key: str, default: str) -> str:
        return self._get(key, str, default)

    def flag(self, key: str, default: bool) -> bool:
        return self._get(key, bool, default)

    def strings(self, key: str) -> list[str]:
        found = self._list(key, str)
        if not found:
            raise ModelLoadError(f"{self.path} lacks {key}")
        return found

    def scores(self) -> list[float]:
        found = self._numbers("tokenizer.ggml.scores", float)
        if not found:
            raise ModelLoadError(f"{self.path} lacks tokenizer.ggml.scores")
        return found

    def token_id(self, key: str) -> int | None:
        """The token that a field names, None if there is no such field. Raises if there is no such token."""
        token = self._get(key, int, None)
        if token is not None and token not in range(len(self.tokens)):
            raise ModelLoadError(f"{self.path}: {key} is {token}, but there are {len(self.tokens)} tokens")
        return token

    def _numbers(self, key: str, kind: type) -> list[Any]:
        """One number for each token; none at all if there is no such field."""
        found = self._list(key, kind)
        if found and len(found) != len(self.tokens):
            raise ModelLoadError(f"{self.path}: {key} has {len(found)} entries for {len(self.tokens)} tokens")
        return found

    def _list(self, key: str, kind: type) -> list[Any]:
        found: list[Any] = self._get(key, list, [])
        if found and not isinstance(found[0], kind):
            raise ModelLoadError(f"{self.path}: {key} has an unexpected type, a list of {type(found[0]).__name__}")
        return found

    def _get(self, key: str, kind: type, default: ValueT) -> Any | ValueT:
        value = self._values.get(key, default)
        if value is not default and not isinstance(value, kind):
            raise ModelLoadError(f"{self.path}: {key} has an unexpected type, {type(value).__name__}")
        return value
