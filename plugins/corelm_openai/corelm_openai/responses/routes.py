"""``/v1/responses``."""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec
from litestar import delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from corelm.api import InvalidRequestError
from corelm_openai.openapi.operation import OPERATION, Operation
from corelm_openai.responses import events
from corelm_openai.responses.background import FollowedRun
from corelm_openai.responses.body import ResponseBody
from corelm_openai.responses.listing import ItemList, list_inputs, read_page
from corelm_openai.responses.making import ResponseMaker, owner_of
from corelm_openai.responses.shape import ResponseObject
from corelm_openai.responses.store import Stored
from corelm_openai.service import HTTPRequest, Service, json_bytes, json_response


class DeletedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to a deletion."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


_INTEGER = re.compile("-?[0-9]{1,18}")
_decoder = msgspec.json.Decoder(ResponseBody)
_creating = Operation(
    summary="Answer, and keep the answer",
    body=ResponseBody,
    reply=ResponseObject,
    events=events.ALL,
    errors=[429],
)
_getting = Operation(summary="A response that was kept", reply=ResponseObject, events=events.ALL, errors=[400, 404])
_deleting = Operation(summary="Forget a response", reply=DeletedResponse, errors=[404])
_cancelling = Operation(summary="End a response in the background", reply=ResponseObject, errors=[400, 404])
_listing = Operation(summary="What a response answers", reply=ItemList, errors=[400, 404])


def responses_routes(service: Service) -> list[HTTPRouteHandler]:
    """The endpoints."""
    maker = ResponseMaker(service)
    store = maker.store

    def find(request: HTTPRequest) -> Stored:
        return store.find(request.path_params["response_id"], owner_of(request))

    @post("/v1/responses", status_code=200, opt={OPERATION: _creating})
    async def create_response(request: HTTPRequest) -> ASGIApp:
        return await maker.make(request, await service.read(request, _decoder))

    @get("/v1/responses/{response_id:str}", opt={OPERATION: _getting})
    async def get_response(request: HTTPRequest) -> ASGIApp:
        stored = find(request)
        first = _first_event(request.query_params)
        return json_bytes(stored.body) if first is None else _followed(stored, first)

    @delete("/v1/responses/{response_id:str}", status_code=200, opt={OPERATION: _deleting})
    async def delete_response(request: HTTPRequest) -> ASGIApp:
        stored = find(request)
        store.remove(stored)
        return json_response(DeletedResponse(id=stored.id))

    @post("/v1/responses/{response_id:str}/cancel", status_code=200, opt={OPERATION: _cancelling})
    async def cancel_response(request: HTTPRequest) -> ASGIApp:
        stored = find(request)
        if stored.run is None:
            raise InvalidRequestError("Only a response that was created with background can be cancelled")
        stored.run.cancel()
        return json_bytes(stored.body)

    @get("/v1/responses/{response_id:str}/input_items", opt={OPERATION: _listing})
    async def list_input_items(request: HTTPRequest) -> ASGIApp:
        return json_response(list_inputs(find(request), read_page(request.query_params)))

    return [create_response, get_response, delete_response, cancel_response, list_input_items]


def _first_event(query: Mapping[str, str]) -> int | None:
    """The number of the first event that is asked for, if events are. Raises `InvalidRequestError`."""
    if query.get("stream", "false") not in ("true", "false"):
        raise InvalidRequestError("stream must be true or false", param="stream")
    after = query.get("starting_after", "-1")
    if not _INTEGER.fullmatch(after):
        raise InvalidRequestError("starting_after must be an integer", param="starting_after")
    return max(int(after) + 1, 0) if query.get("stream") == "true" else None


def _followed(stored: Stored, first: int) -> FollowedRun:
    if stored.run is None or not stored.run.keeps_events:
        raise InvalidRequestError(
            "Only a response that was created with background and stream can be streamed later", param="stream"
        )
    return FollowedRun(stored.run, first)
