"""Compares what goes over the wire with the description of the API."""

import asyncio
import functools
import json
import re

import jsonschema_rs
from corelm_openai.http.exchanges import CLIENT_LEFT
from corelm_openai.openapi.document import describe
from corelm_openai.routes import make_routes
from corelm_openai.service import Service
from corelm_openai.settings import OpenAISettings
from corelm_openai.telemetry.watchers import watch
from openai_fakes import FakeEngine


@functools.cache
def document():
    """The description, as a server with API keys and otherwise default settings gives it."""
    engine, settings = FakeEngine(), OpenAISettings()
    routes = [*make_routes(Service(engine, settings, asyncio.Event())), *watch(engine, settings).routes]
    return json.loads(json.dumps(describe(routes, "", asks_for_keys=True)))


@functools.cache
def _validator(schema):
    root = {"$schema": "https://json-schema.org/draft/2020-12/schema", "components": document()["components"]}
    return jsonschema_rs.validator_for(root | json.loads(schema))


def problem_of(schema, value):
    """Why `value` is not as `schema` says, if it is not."""
    error = next(iter(_validator(json.dumps(schema)).iter_errors(value)), None)
    return error and f"{error.message[:500]} at {'/'.join(map(str, error.instance_path))}"


def resolved(item):
    """What a reference in the description stands for."""
    while "$ref" in item:
        item = functools.reduce(lambda found, part: found[part], item["$ref"].split("/")[1:], document())
    return item


@functools.cache
def _operations():
    return [
        (re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))), item)
        for path, item in document()["paths"].items()
    ]


def operation_of(method, path):
    """The description of an operation."""
    return next((item.get(method.lower()) for pattern, item in _operations() if pattern.fullmatch(path)), None)


def events_in(text):
    """The JSON of the complete events of a stream."""
    lines = [line[6:] for line in text.rpartition("\n\n")[0].split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


class Checked:
    """An ASGI application around `app`, which notes in `problems` where the description is not true.

    Whatever was answered with success must have been allowed, and every answer must be described.
    """

    def __init__(self, app, root_path=""):
        self._app = app
        self._root_path = root_path
        self.problems = []

    async def __call__(self, scope, receive, send):
        request, response, start = bytearray(), bytearray(), {}

        async def receiving():
            message = await receive()
            request.extend(message.get("body", b""))
            return message

        async def sending(message):
            start.update(message)
            response.extend(message.get("body", b""))
            await send(message)

        await self._app(scope, receiving, sending)
        below = scope["path"].startswith(self._root_path)
        operation = below and operation_of(scope["method"], scope["path"].removeprefix(self._root_path))
        if operation and start and start["status"] != CLIENT_LEFT:  # which nobody sees
            where = f"{scope['method']} {scope['path']}: {start['status']}: "
            found = _problems(operation, bytes(request), start, bytes(response))
            self.problems += [f"{where}{problem}; request {bytes(request[:1000])!r}" for problem in found]

    def check(self):
        """Fail if the description was not true."""
        assert not self.problems, "\n".join(self.problems[:5])


def _problems(operation, request, start, response):
    status = start["status"]
    if status == 200 and "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        if problem := problem_of(schema, json.loads(request)):
            yield f"the request was taken, although {problem}"
    if str(status) not in operation["responses"]:
        yield "the status is not described"
        return
    headers = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    media_type = headers.get("content-type", "").partition(";")[0]
    content = resolved(operation["responses"][str(status)]).get("content")
    if content is None:
        return
    if media_type not in content:
        yield f"the reply is {media_type}"
    elif media_type == "text/event-stream":
        schema = content[media_type]["schema"]["properties"]["data"]["anyOf"][0]["contentSchema"]
        yield from (
            f"{problem} in {event}" for event in events_in(response.decode()) if (problem := problem_of(schema, event))
        )
    elif media_type == "application/json" and not start.get("more_body"):
        problem = problem_of(content[media_type]["schema"], json.loads(response))
        yield from [f"{problem} in {response[:1000]!r}"] if problem else []
