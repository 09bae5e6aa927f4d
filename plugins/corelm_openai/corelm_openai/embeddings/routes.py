"""``POST /v1/embeddings``."""

import asyncio

import msgspec
from litestar import post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from corelm_openai.embeddings.body import EmbeddingBody
from corelm_openai.embeddings.job import EmbeddingJob
from corelm_openai.embeddings.reply import EmbeddingList, encode_reply
from corelm_openai.http.disconnect import until_disconnect
from corelm_openai.http.exchanges import Work, exchange_of
from corelm_openai.openapi.operation import OPERATION, Operation
from corelm_openai.options import request_options
from corelm_openai.prompts import read_prompts
from corelm_openai.service import HTTPRequest, Service, json_bytes

_decoder = msgspec.json.Decoder(EmbeddingBody)
_operation = Operation(summary="Embed texts", body=EmbeddingBody, reply=EmbeddingList, errors=[429])


def embedding_routes(service: Service) -> list[HTTPRouteHandler]:
    """The endpoint."""

    @post("/v1/embeddings", status_code=200, opt={OPERATION: _operation})
    async def create_embeddings(request: HTTPRequest) -> ASGIApp:
        body = await service.read(request, _decoder)
        body.check(service.engine.model.embedding_size)
        prompts = read_prompts(body.input, "input", service.settings.max_prompts)
        options = service.with_tenant(request_options(body, service.settings, request.headers), request)
        job = EmbeddingJob(service.engine, prompts, options, body.truncate_prompt_tokens)
        exchange_of(request.scope).work = Work(job.id, job.request_ids, None, lambda: (job.prompt_tokens, 0))
        embeddings = await until_disconnect(request.receive, job.run())
        as_base64 = body.encoding_format == "base64"
        return json_bytes(await asyncio.to_thread(encode_reply, body.model, embeddings, body.dimensions, as_base64))

    return [create_embeddings]
