"""Fields that are known and not supported."""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import Raw

from corelm.api import InvalidRequestError
from corelm_openai.http.decoding import decode

LONGEST_NEUTRAL = 64
"""Bytes. A longer value asks for something, and is refused without the time that decoding it could take."""

_anything = msgspec.json.Decoder(Any)


def asks(raw: Raw, neutral: Sequence[Any] | None = None) -> bool:
    """Whether a field asks for something.

    Null and a field that is not there never do; besides, `neutral` values do not, by default false, 0, "", [] and {}.
    """
    data = bytes(raw) or b"null"
    if len(data) > LONGEST_NEUTRAL:
        return True
    value = decode(data, _anything)
    return bool(value) if neutral is None else value is not None and value not in neutral


class Unsupported(msgspec.Struct, kw_only=True):
    """Fields that would change the text, were they supported: refused, unless the value asks for nothing."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {
        "function_call": ("none", "auto"),
        "modalities": (["text"], []),
        "typical_p": (1,),
        "verbosity": ("medium",),
    }
    """Values that ask for nothing, where they are not the usual ones."""
    instead: ClassVar[dict[str, str]] = {"function_call": "tool_choice", "functions": "tools"}
    """Fields that took the place of others."""
    unsupported_here: ClassVar[tuple[str, ...]] = ()
    """Fields of another endpoint that this one does not support."""

    audio: Raw = Raw()
    chat_template: Raw = Raw()
    documents: Raw = Raw()
    function_call: Raw = Raw()
    functions: Raw = Raw()
    grammar: Raw = Raw()
    mirostat: Raw = Raw()
    modalities: Raw = Raw()
    suffix: Raw = Raw()
    typical_p: Raw = Raw()
    verbosity: Raw = Raw()
    web_search_options: Raw = Raw()

    def refuse_unsupported(self, n: int) -> None:
        """Raise `InvalidRequestError` for the first field that asks for something."""
        neutral = {"best_of": (n, 0), **self.neutral}
        for name in (*Unsupported.__struct_fields__, *self.unsupported_here):
            if asks(getattr(self, name), neutral.get(name)):
                advice = f"; use {self.instead[name]}" if name in self.instead else ""
                raise InvalidRequestError(f"{name} is not supported{advice}", param=name)
