"""Typed access to the ``tokenizer.*`` fields of a GGUF file."""

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from corelm.api import ModelLoadError
from corelm_hf.gguf_metadata import read_metadata

ValueT = TypeVar("ValueT")

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
"""Token types (``tokenizer.ggml.token_type``)."""


class Fields:
    """The fields, checked for their type when they are asked for; `ModelLoadError` names one of a wrong type."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._values: dict[str, Any] = read_metadata(path, lambda key: key.startswith("tokenizer."))
        self.tokens = self.strings("tokenizer.ggml.tokens")
        """Texts in the order of their ids, as the file spells them."""
        types = self._get("tokenizer.ggml.token_type", array, None)
        self.types: Sequence[int] = types if types is not None else [NORMAL] * len(self.tokens)
        self._check_length("tokenizer.ggml.token_type", self.types)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def text(self, key: str, default: str) -> str:
        return self._get(key, str, default)

    def flag(self, key: str, default: bool) -> bool:
        return self._get(key, bool, default)

    def strings(self, key: str) -> list[str]:
        found: list[str] = self._get(key, list, [])
        if not found:
            raise ModelLoadError(f"{self.path} lacks {key}")
        return found

    def scores(self) -> Sequence[float]:
        found: Sequence[float] = self._get("tokenizer.ggml.scores", array, array("f"))
        self._check_length("tokenizer.ggml.scores", found)
        return found

    def token_id(self, key: str) -> int | None:
        """The token that a field names, None if there is no such field. Raises if there is no such token."""
        token = self._get(key, int, None)
        if token is not None and token not in range(len(self.tokens)):
            raise ModelLoadError(f"{self.path}: {key} is {token}, but there are {len(self.tokens)} tokens")
        return token

    def _check_length(self, key: str, values: Sequence[Any]) -> None:
        if len(values) != len(self.tokens):
            raise ModelLoadError(f"{self.path}: {key} has {len(values)} entries for {len(self.tokens)} tokens")

    def _get(self, key: str, kind: type, default: ValueT) -> Any | ValueT:
        value = self._values.get(key, default)
        if value is not default and not isinstance(value, kind):
            raise ModelLoadError(f"{self.path}: {key} has an unexpected type, {type(value).__name__}")
        return value
