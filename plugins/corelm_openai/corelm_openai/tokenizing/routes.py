"""``POST /tokenize`` and ``POST /detokenize``."""

import msgspec
from litestar import post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from corelm_openai.openapi.operation import OPERATION, Operation
from corelm_openai.service import HTTPRequest, Service, json_response
from corelm_openai.tokenizing.body import DetokenizeBody, TokenizeBody


class Tokenized(msgspec.Struct, frozen=True, kw_only=True):
    """The reply of ``/tokenize``."""

    count: int
    max_model_len: int | None
    tokens: list[int]
    token_strs: list[str] | None
    """What each token stands for, if that was asked for: its text, or its bytes if that is not whole characters."""


class Detokenized(msgspec.Struct, frozen=True, kw_only=True):
    """The reply of ``/detokenize``."""

    prompt: str


_tokenize = msgspec.json.Decoder(TokenizeBody)
_detokenize = msgspec.json.Decoder(DetokenizeBody)
_tokenizing = Operation(summary="The tokens of a text or a conversation", body=TokenizeBody, reply=Tokenized)
_detokenizing = Operation(summary="The text of tokens", body=DetokenizeBody, reply=Detokenized)


def tokenizing_routes(service: Service) -> list[HTTPRouteHandler]:
    """The endpoints."""
    engine, vocabulary = service.engine, service.vocabulary

    @post("/tokenize", status_code=200, opt={OPERATION: _tokenizing})
    async def tokenize(request: HTTPRequest) -> ASGIApp:
        body = await service.read(request, _tokenize)
        prompt = body.what(service, request.headers)
        tokens = await engine.tokenize(prompt, add_special_tokens=body.add_special_tokens is not False)
        strings = None
        if body.return_token_strs:
            await vocabulary.learn(tokens)
            strings = [vocabulary[token].text for token in tokens]
        return json_response(
            Tokenized(count=len(tokens), max_model_len=engine.model.max_model_len, tokens=tokens, token_strs=strings)
        )

    @post("/detokenize", status_code=200, opt={OPERATION: _detokenizing})
    async def detokenize(request: HTTPRequest) -> ASGIApp:
        body = await service.read(request, _detokenize)
        return json_response(Detokenized(prompt=await engine.detokenize(body.tokens)))

    return [tokenize, detokenize]
