"""Errors in Anthropic's shape."""

from typing import Any

import msgspec
from litestar import Request, Response
from litestar.datastructures import State

from corelm_openai.http.errors import Problem, describe
from corelm_openai.http.request_ids import request_id

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong."""

    type: str
    message: str


class ErrorBody(msgspec.Struct, tag_field="type", tag="error", frozen=True, kw_only=True):
    """The body of a response that is not a success, and the last event of a stream that failed."""

    error: ErrorDetail
    request_id: str


def error_body(problem: Problem, request_id: str) -> ErrorBody:
    """What to tell the client."""
    kind = _TYPES.get(problem.status, "invalid_request_error" if problem.status < 500 else "api_error")
    return ErrorBody(error=ErrorDetail(type=kind, message=problem.body.error.message), request_id=request_id)


def error_response(request: Request[Any, Any, State], error: Exception) -> Response[bytes]:
    """The response for an error that came before anything was sent."""
    problem = describe(error)
    return Response(
        msgspec.json.encode(error_body(problem, request_id(request.scope))),
        status_code=problem.status,
        media_type="application/json",
        headers=dict(problem.headers),
    )
