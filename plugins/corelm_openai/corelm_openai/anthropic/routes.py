"""``POST /v1/messages`` and ``POST /v1/messages/count_tokens``."""

import msgspec
from litestar import post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, ExceptionHandlersMap

from corelm_openai.anthropic.body import ConversationBody, MessagesBody
from corelm_openai.anthropic.content import BlockDelta, BlockStart, BlockStop
from corelm_openai.anthropic.errors import ErrorBody, error_response
from corelm_openai.anthropic.reply import Message, MessageDelta, MessageReply, MessageStart, MessageStop
from corelm_openai.anthropic.translate import conversation_job, fitted, messages_job
from corelm_openai.http.request_ids import request_id
from corelm_openai.openapi.operation import OPERATION, Operation
from corelm_openai.service import HTTPRequest, Service, json_response

_messages = msgspec.json.Decoder(MessagesBody)
_conversation = msgspec.json.Decoder(ConversationBody)
_create = Operation(
    summary="Answer in a conversation, as Anthropic's API does",
    body=MessagesBody,
    reply=Message,
    events=[MessageStart, BlockStart, BlockDelta, BlockStop, MessageDelta, MessageStop, ErrorBody],
    errors=[429],
    error_body=ErrorBody,
)


class TokenCount(msgspec.Struct, frozen=True, kw_only=True):
    """How long a prompt is."""

    input_tokens: int


_count = Operation(
    summary="Count the tokens of a conversation", body=ConversationBody, reply=TokenCount, error_body=ErrorBody
)


def messages_routes(service: Service) -> list[HTTPRouteHandler]:
    """The endpoints. Their errors have Anthropic's shape."""

    handlers: ExceptionHandlersMap = {Exception: error_response}

    @post("/v1/messages", status_code=200, exception_handlers=handlers, opt={OPERATION: _create})
    async def create_message(request: HTTPRequest) -> ASGIApp:
        body = await service.read(request, _messages)
        job = await fitted(messages_job(body, service, request.headers), service.engine)
        reply = MessageReply(body, job, service.vocabulary, request_id(request.scope))
        return await service.answer(request, job, reply, stream=bool(body.stream))

    @post("/v1/messages/count_tokens", status_code=200, exception_handlers=handlers, opt={OPERATION: _count})
    async def count_tokens(request: HTTPRequest) -> ASGIApp:
        body = await service.read(request, _conversation)
        job = conversation_job(body, service, request.headers)
        return json_response(TokenCount(input_tokens=len(await service.engine.tokenize(job.prompts[0]))))

    return [create_message, count_tokens]
