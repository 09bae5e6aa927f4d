"""Errors in OpenAI's shape."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.datastructures import State
from litestar.exceptions import HTTPException

from corelm.api import CorelmError, EngineDeadError, EngineStoppedError, InvalidRequestError, QueueFullError

logger = logging.getLogger(__name__)

MODEL_NOT_FOUND = "model_not_found"
RESPONSE_NOT_FOUND = "response_not_found"
MAX_ECHO = 100
RETRY_AFTER = {"Retry-After": "5"}
"""Seconds after which a client may find the server ready."""
RETRY_SOON = {"Retry-After": "1"}
"""Seconds after which a client may find room in the queue."""


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every response that is not a success, and the last event of a stream that failed."""

    error: ErrorDetail


class Problem(msgspec.Struct, frozen=True):
    """An exception as the client sees it."""

    status: int
    body: ErrorBody
    headers: Mapping[str, str] = {}


def describe(error: Exception) -> Problem:
    """What to tell the client. What nobody foresaw is logged with its traceback and stays vague."""
    match error:
        case InvalidRequestError():
            status = 404 if error.code in (MODEL_NOT_FOUND, RESPONSE_NOT_FOUND) else 400
            return _problem(status, str(error), "invalid_request_error", param=error.param, code=error.code)
        case QueueFullError():
            return _problem(429, str(error), "rate_limit_error", code="queue_full", headers=RETRY_SOON)
        case EngineStoppedError():
            return _problem(503, str(error), "service_unavailable", headers=RETRY_AFTER)
        case EngineDeadError():
            return _problem(500, "The engine has failed; the server's log says why.", "server_error")
        case CorelmError():
            return _problem(500, str(error), "server_error")
        case HTTPException():
            return _http_problem(error)
        case RecursionError():  # nothing but what clients nest goes that deep
            return _problem(400, "The body is nested too deeply", "invalid_request_error")
    logger.error("error while answering a request", exc_info=error)
    return _problem(500, "The server failed to answer this request; its log says why.", "server_error")


def _problem(
    status: int,
    message: str,
    kind: str,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Problem:
    return Problem(status, ErrorBody(ErrorDetail(message=message, type=kind, param=param, code=code)), headers or {})


_HTTP_MESSAGES = {
    404: "There is nothing at this URL; the API lies under /v1.",
    405: "This URL does not take this method.",
    413: "The body is larger than this server takes (its setting max_body_mb).",
}


def _http_problem(error: HTTPException) -> Problem:
    status = error.status_code
    message = _HTTP_MESSAGES.get(status) or error.detail
    kind = "invalid_request_error" if status < 500 else "server_error"
    code = "invalid_api_key" if status == 401 else None
    return _problem(status, message, kind, code=code, headers=error.headers)


@contextmanager
def renaming(names: Mapping[str, str]) -> Iterator[None]:
    """Let an `InvalidRequestError` call a parameter as the client does: `names` maps corelm's names to the client's."""
    try:
        yield
    except InvalidRequestError as error:
        if error.param is None or error.param not in names:
            raise
        name = names[error.param]
        raise InvalidRequestError(str(error).replace(error.param, name), param=name, code=error.code) from error


def shortened(text: str) -> str:
    """What a client sent, short enough to be told back to it."""
    return text if len(text) <= MAX_ECHO else text[:MAX_ECHO] + "..."


def error_response(request: Request[Any, Any, State], error: Exception) -> Response[bytes]:
    """The response for an error that came before anything was sent."""
    problem = describe(error)
    return Response(
        msgspec.json.encode(problem.body),
        status_code=problem.status,
        media_type="application/json",
        headers=dict(problem.headers),
    )
