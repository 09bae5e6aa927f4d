"""The id by which an HTTP request is known: in its response, to its client, and in the log."""

import re
from uuid import uuid4

from litestar.types import Scope

HEADER = b"x-request-id"
_KEY = "corelm_request_id"
_ACCEPTABLE = re.compile(rb"[A-Za-z0-9._-]{1,128}")


def request_id(scope: Scope) -> str:
    """The client's id if it is short and plain, else one that is made up once."""
    state = scope["state"]
    if _KEY not in state:
        given = next((value for name, value in scope["headers"] if name == HEADER), b"")
        state[_KEY] = given.decode() if _ACCEPTABLE.fullmatch(given) else new_id()
    return str(state[_KEY])


def new_id() -> str:
    """An id that nothing else has."""
    return f"req_{uuid4().hex}"
