"""``/v1/responses``."""

from typing import Annotated, Literal

import msgspec
from litestar import delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp
from msgspec import Meta

from corelm.api import InvalidRequestError
from corelm_openai.http.decoding import decode_query
from corelm_openai.openapi.operation import OPERATION, Operation
from corelm_openai.responses import events
from corelm_openai.responses.background import FollowedRun
from corelm_openai.responses.body import ResponseBody
from corelm_openai.responses.listing import ItemList, Page, list_inputs
from corelm_openai.responses.making import ResponseMaker, owner_of
from corelm_openai.responses.shape import ResponseObject
from corelm_openai.responses.store import Stored
from corelm_openai.service import HTTPRequest, Service, json_bytes, json_response


class DeletedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to a deletion."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the events of a response are asked for, and which."""

    stream: bool = False
    starting_after: Annotated[int, Meta(ge=-1, le=2**62)] = -1
    """The number of the last event that is not."""


_decoder = msgspec.json.Decoder(ResponseBody)
_creating = Operation(
    summary="Answer, and keep the answer",
    body=ResponseBody,
    reply=ResponseObject,
    events=events.ALL,
    errors=[429],
)
_getting = Operation(
    summary="A response that was kept",
    query=EventsQuery,
    reply=ResponseObject,
    events=events.ALL,
    errors=[400, 404],
)
_deleting = Operation(summary="Forget a response", reply=DeletedResponse, errors=[404])
_cancelling = Operation(summary="End a response in the background", reply=ResponseObject, errors=[400, 404])
_listing = Operation(summary="What a response answers", query=Page, reply=ItemList, errors=[400, 404])


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
        query = decode_query(request.query_params, EventsQuery)
        return _followed(stored, query.starting_after + 1) if query.stream else json_bytes(stored.body)

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
        return json_response(list_inputs(find(request), decode_query(request.query_params, Page)))

    return [create_response, get_response, delete_response, cancel_response, list_input_items]


def _followed(stored: Stored, first: int) -> FollowedRun:
    if stored.run is None or not stored.run.keeps_events:
        raise InvalidRequestError(
            "Only a response that was created with background and stream can be streamed later", param="stream"
        )
    return FollowedRun(stored.run, first)
