"""The ``x-request-id`` header, on every response."""

import re
from uuid import uuid4

from litestar.datastructures import MutableScopeHeaders
from litestar.types import Message, Scope

HEADER = b"x-request-id"
_ACCEPTABLE = re.compile(rb"[A-Za-z0-9._-]{1,128}")


async def add_request_id(message: Message, scope: Scope) -> None:
    """Echo the client's id if it is short and plain, else make one up."""
    if message["type"] != "http.response.start":
        return
    given = next((value for name, value in scope["headers"] if name == HEADER), b"")
    request_id = given.decode() if _ACCEPTABLE.fullmatch(given) else f"req_{uuid4().hex}"
    MutableScopeHeaders.from_message(message)[HEADER.decode()] = request_id
