"""How a response is made."""

from functools import partial

import msgspec
from litestar.types import ASGIApp

from corelm.api import InvalidRequestError
from corelm_openai.chat.body import ChatJob
from corelm_openai.http.auth import IDENTITY
from corelm_openai.http.errors import shortened
from corelm_openai.responses.background import BackgroundRun, FollowedRun
from corelm_openai.responses.body import ResponseBody
from corelm_openai.responses.conversation import chat_messages, check_outputs
from corelm_openai.responses.fitting import fitting_job
from corelm_openai.responses.input import read_input
from corelm_openai.responses.items import Item
from corelm_openai.responses.reply import ResponseReply
from corelm_openai.responses.store import ResponseStore, Stored
from corelm_openai.service import HTTPRequest, Service, json_bytes


class ResponseMaker:
    """Makes responses, and keeps those that may be asked for later in `store`."""

    def __init__(self, service: Service) -> None:
        self.store = ResponseStore(service.settings)
        self._service = service

    async def make(self, request: HTTPRequest, body: ResponseBody) -> ASGIApp:
        """The answer to a request. Raises `InvalidRequestError`, and what `EngineClient.generate` raises."""
        body.check()
        service, owner = self._service, owner_of(request)
        items = self._conversation(body, owner)
        job = await fitting_job(body, chat_messages(items), service, request.headers)
        if body.background:
            return await self._make_in_background(request, body, job, items)
        keep = partial(self.store.put, Stored(owner, items)) if body.stored else None
        reply = ResponseReply(body, job, service.vocabulary, keep)
        if body.stream:
            return await service.answer(request, job, reply, stream=True)
        data = await service.whole(request, job, reply)
        if keep:
            keep(reply.response, data)
        return json_bytes(data)

    async def _make_in_background(
        self, request: HTTPRequest, body: ResponseBody, job: ChatJob, items: list[Item]
    ) -> ASGIApp:
        service = self._service
        reply = ResponseReply(body, job, service.vocabulary, None)
        run = BackgroundRun(service.choices(request, job, reply), reply, keeps_events=bool(body.stream))
        await run.queue()
        data = msgspec.json.encode(reply.response)
        stored = Stored(owner_of(request), items, run)
        self.store.put(stored, reply.response, data)
        run.begin(service.stop, partial(self._keep_changed, stored, reply))
        return FollowedRun(run, 0) if body.stream else json_bytes(data)

    def _keep_changed(self, stored: Stored, reply: ResponseReply) -> None:
        if self.store.holds(stored):
            self.store.put(stored, reply.response, msgspec.json.encode(reply.response))

    def _conversation(self, body: ResponseBody, owner: str | None) -> list[Item]:
        """What came before, and the input."""
        before = self._before(body.previous_response_id, owner)
        items = before + read_input(body.input, partial(self.store.item, owner=owner))
        seen: set[str] = set()
        for item in items:
            if item.id in seen:
                raise InvalidRequestError(f"input: the item {shortened(item.id)} is there twice", param="input")
            seen.add(item.id)
        check_outputs(items)
        return items

    def _before(self, response_id: str | None, owner: str | None) -> list[Item]:
        if response_id is None:
            return []
        param = "previous_response_id"
        try:
            stored = self.store.find(response_id, owner)
        except InvalidRequestError as error:
            raise InvalidRequestError(str(error), param=param, code="previous_response_not_found") from None
        if stored.run and not stored.run.ended:
            raise InvalidRequestError(f"The response {response_id} is still being made", param=param)
        return stored.conversation()


def owner_of(request: HTTPRequest) -> str | None:
    """The identity of the API key that was sent, if one was asked for."""
    return request.scope.get(IDENTITY)  # type: ignore[return-value]
