"""Checked reading of values from a configuration file."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corelm.api import ModelLoadError

_LARGEST = 2**31 - 1


class Fields:
    """The entries of one mapping in a file; null counts as absent.

    The typed methods raise `ModelLoadError` with the file and the key if the value is of another type, or missing
    while no default is given.
    """

    def __init__(self, values: Mapping[str, Any], file: Path, prefix: str = "") -> None:
        """`prefix` stands before the keys in messages."""
        self._values = values
        self._file = file
        self._prefix = prefix

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def get(self, key: str) -> Any:
        """The value as it stands, or None."""
        return self._values.get(key)

    def count(self, key: str, default: int | None = None, *, least: int = 1, most: int = _LARGEST) -> int:
        """An integer from `least` to `most`."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.error(f"{self._prefix}{key} must be an integer from {least} to {most}, not {value!r}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive finite number."""
        value = self._value(key, default)
        valid = isinstance(value, int | float) and not isinstance(value, bool)
        if not valid or not 0 < value <= sys.float_info.max:
            raise self.error(f"{self._prefix}{key} must be a positive number, not {value!r}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self.error(f"{self._prefix}{key} must be true or false, not {value!r}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self.error(f"{self._prefix}{key} must be a string, not {value!r}")
        return value

    def group(self, key: str) -> "Fields":
        """The entries of a nested mapping; none if it is absent."""
        value = self._value(key, {})
        if not isinstance(value, dict):
            raise self.error(f"{self._prefix}{key} must be an object, not {value!r}")
        return Fields(value, self._file, f"{self._prefix}{key}.")

    def error(self, problem: str) -> ModelLoadError:
        """An error that names the file."""
        return ModelLoadError(f"{self._file}: {problem}")

    def _value(self, key: str, default: Any) -> Any:
        value = self._values.get(key)
        if value is not None:
            return value
        if default is None:
            raise self.error(f"{self._prefix}{key} is missing")
        return default
