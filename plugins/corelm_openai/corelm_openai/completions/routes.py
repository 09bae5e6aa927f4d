"""``POST /v1/completions``."""

import msgspec
from litestar import post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from corelm_openai.completions.body import CompletionBody
from corelm_openai.completions.reply import Completion, CompletionReply
from corelm_openai.generation.envelopes import Done
from corelm_openai.http.errors import ErrorBody
from corelm_openai.openapi.operation import OPERATION, Operation
from corelm_openai.service import HTTPRequest, Service

_decoder = msgspec.json.Decoder(CompletionBody)
_operation = Operation(
    summary="Go on with a text",
    body=CompletionBody,
    reply=Completion,
    events=[Completion, ErrorBody, Done],
    errors=[429],
)


def completion_routes(service: Service) -> list[HTTPRouteHandler]:
    """The endpoint."""

    @post("/v1/completions", status_code=200, opt={OPERATION: _operation})
    async def create_completion(request: HTTPRequest) -> ASGIApp:
        body = await service.read(request, _decoder)
        job = body.job(service, request.headers)
        reply = CompletionReply(body.model, job, service.vocabulary, include_usage=body.include_usage)
        return await service.answer(request, job, reply, stream=bool(body.stream))

    return [create_completion]
