"""``POST /v1/chat/completions``."""

import msgspec
from litestar import post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from corelm_openai.chat.body import ChatBody
from corelm_openai.chat.reply import ChatCompletion, ChatCompletionChunk, ChatReply
from corelm_openai.generation.envelopes import Done
from corelm_openai.http.errors import ErrorBody
from corelm_openai.openapi.operation import OPERATION, Operation
from corelm_openai.service import HTTPRequest, Service

_decoder = msgspec.json.Decoder(ChatBody)
_operation = Operation(
    summary="Answer in a conversation",
    body=ChatBody,
    reply=ChatCompletion,
    events=[ChatCompletionChunk, ErrorBody, Done],
    errors=[429],
)


def chat_routes(service: Service) -> list[HTTPRouteHandler]:
    """The endpoint."""

    @post("/v1/chat/completions", status_code=200, opt={OPERATION: _operation})
    async def create_chat_completion(request: HTTPRequest) -> ASGIApp:
        body = await service.read(request, _decoder)
        job = body.job(service, request.headers)
        reply = ChatReply(body.model, job, service.vocabulary, include_usage=body.include_usage)
        return await service.answer(request, job, reply, stream=bool(body.stream))

    return [create_chat_completion]
