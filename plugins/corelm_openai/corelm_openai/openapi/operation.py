"""How a route is described, beside its handler."""

from collections.abc import Sequence
from typing import Any

import msgspec

from corelm_openai.http.errors import ErrorBody

OPERATION = "operation"
"""The key of a route's `Operation` in its ``opt``."""
JSON = "application/json"


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What a route takes, and what it answers with status 200."""

    summary: str
    body: type[msgspec.Struct] | None = None
    """What the request's JSON is decoded to."""
    query: type[msgspec.Struct] | None = None
    """What the parameters in the URL are decoded to."""
    reply: Any
    """The type of the reply, which is JSON unless `media_type` says something else."""
    media_type: str = JSON
    events: Sequence[Any] = ()
    """The types of the data in the events of a streamed reply: structs for JSON, a `Literal` for what is not JSON. None
    if there is no such reply."""
    errors: Sequence[int] = ()
    """Statuses of errors, besides those that every route of its kind may have."""
    error_body: type[msgspec.Struct] = ErrorBody
    """The shape of its errors."""

    @property
    def error_statuses(self) -> list[int]:
        """Every status of an error that this route may have, whoever asks."""
        of_bodies = {400, 404, 408, 413, 503} if self.body else set()
        return sorted({500, *of_bodies, *self.errors})
