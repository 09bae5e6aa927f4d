"""Text from outside, made harmless."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from corelm.api import InvalidRequestError

BREAK = "\ufdd0"
"""Keeps the halves of a control token's text apart. A noncharacter: Unicode reserves it for such uses, so it stands
in no ordinary text; where it does, it is dropped."""

END = "\ufdd1"
"""Marks where the last message ends. A noncharacter like `BREAK`; where it stands in a text, it is dropped."""

MAX_DEPTH = 64
"""Deepest nesting of lists and objects in a message."""


def check_encodable(text: str, param: str) -> None:
    """Raise `InvalidRequestError` if `text` has a lone surrogate, which no encoding can express."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(f"{param} has half of a surrogate pair, which is no character", param=param) from None


class Plain:
    """Copies JSON-like values, with every text of a control token broken up in all their strings and keys."""

    def __init__(self, control_texts: Iterable[str]) -> None:
        rests: dict[str, list[str]] = {}
        control_texts = frozenset(control_texts)
        for text in control_texts:
            rests.setdefault(text[0], []).append(re.escape(text[1:]))
        # Looks ahead instead of consuming, to find texts that overlap too.
        starts = (f"{re.escape(first)}(?={'|'.join(rest)})" for first, rest in rests.items())
        self._start = re.compile("|".join(starts)) if rests else None
        self._single = {text for text in control_texts if len(text) == 1}
        """These cannot be broken; they are dropped."""

    def __call__(self, value: Any, param: str) -> Any:
        """A copy of `value`. Raises `InvalidRequestError` naming `param` for what is not JSON-like."""
        return self._copy(value, param, MAX_DEPTH)

    def _copy(self, value: Any, param: str, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value, param)
        if value is None or isinstance(value, bool | int | float):
            return value
        if depth == 0:
            raise InvalidRequestError(f"{param} is nested deeper than {MAX_DEPTH} levels", param=param)
        if isinstance(value, Mapping):
            return {
                self._copy(key, param, depth - 1): self._copy(item, param, depth - 1) for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._copy(item, param, depth - 1) for item in value]
        raise InvalidRequestError(f"{param} holds a value of type {type(value).__name__}", param=param)

    def _text(self, text: str, param: str) -> str:
        check_encodable(text, param)
        text = str(text).replace(END, "")
        if self._start is None:
            return text
        return self._start.sub(lambda found: BREAK if found[0] in self._single else found[0] + BREAK, text)
