"""Server-sent events."""

from typing import Any

import msgspec
from litestar.types import HTTPResponseStartEvent

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_LINE_ENDS = {char.encode(): f"\\u{ord(char):04x}".encode() for char in "\u0085\u2028\u2029"}
"""Line ends to some clients, though neither JSON nor server-sent events count them as such."""
_TO_SPACES = bytes.maketrans(b"\r\n", b"  ")
"""For JSON that a client sent in lines and gets back as it is: they can only be between its tokens."""

_encode = msgspec.json.Encoder().encode


def start() -> HTTPResponseStartEvent:
    """The beginning of a response of events. Its headers are its own: others add theirs to them."""
    return {"type": "http.response.start", "status": 200, "headers": list(_HEADERS)}


def event(data: Any) -> bytes:
    """One event: a line of JSON without any character that a client could take for a line end."""
    line: bytes = _encode(data).translate(_TO_SPACES)
    if not line.isascii():
        for char, escaped in _LINE_ENDS.items():
            line = line.replace(char, escaped)
    return b"data: %b\n\n" % line


def named_event(name: str, data: Any) -> bytes:
    """An event with a name, for protocols whose clients look at it."""
    return b"event: %b\n%b" % (name.encode(), event(data))
