"""The description of the API is true and complete."""

import httpx
import pytest
from corelm_openai.app import create_app
from corelm_openai.openapi.operation import OPERATION
from corelm_openai.openapi.shown import left_out
from corelm_openai.settings import OpenAISettings
from helpers import start_engine
from openai_http import Http
from openapi_checks import Checked, document, resolved
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from corelm.testing import FakeExecutor


@pytest.fixture
async def engine():
    engine = await start_engine(FakeExecutor())
    yield engine
    await engine.stop()


@pytest.fixture(scope="module")
def described():
    return document()


def handlers(engine, stop, settings):
    app = create_app(engine, settings, stop).app
    return [
        handler for route in app.routes for handler in route.route_handlers if "OPTIONS" not in handler.http_methods
    ]


def test_it_is_valid(described):
    assert not [error.message for error in OPENAPI_31_VALIDATOR.iter_errors(described)]


def test_every_route_is_described(engine, stop):
    missing = [handler.paths for handler in handlers(engine, stop, OpenAISettings()) if OPERATION not in handler.opt]
    assert not missing


async def test_it_is_served(http, described):
    served = (await http.get("/openapi.json")).json()
    assert served["paths"].keys() == {*described["paths"], "/openapi.json"}
    assert served["components"]["schemas"] == described["components"]["schemas"]
    assert all(operation["security"] == [] for item in served["paths"].values() for operation in item.values())


async def test_it_says_where_the_api_lies(engine):
    async with Http(engine, OpenAISettings(root_path="/ai")) as http:
        assert (await http.get("/ai/openapi.json")).json()["servers"] == [{"url": "/ai"}]


async def test_it_asks_for_a_key_where_the_server_does(engine):
    async with Http(engine, OpenAISettings(api_keys=["key"])) as http:
        assert (await http.get("/openapi.json")).status_code == 401
        served = (await http.get("/openapi.json", headers={"authorization": "Bearer key"})).json()
        for path, item in served["paths"].items():
            for method, operation in item.items():
                response = await http.request(method, path.replace("{", "").replace("}", ""))
                assert (response.status_code == 401) == (operation.get("security") != [])
                assert ("401" in operation["responses"]) == (operation.get("security") != [])


def test_names_do_not_depend_on_modules(described):
    names = described["components"]["schemas"].keys()
    assert {"AnthropicMessage", "ChatMessage", "ResponsesMessage"} <= names
    assert not [name for name in names if "." in name]
    operations = [operation["operationId"] for item in described["paths"].values() for operation in item.values()]
    assert len(operations) == len(set(operations))


BODIES = {
    "/v1/completions": {"model": "fake", "prompt": "a"},
    "/v1/chat/completions": {"model": "fake", "messages": [{"role": "user", "content": "a"}]},
    "/v1/responses": {"model": "fake", "input": "a"},
    "/v1/messages": {"model": "fake", "messages": [{"role": "user", "content": "a"}], "max_tokens": 4},
    "/v1/messages/count_tokens": {"model": "fake", "messages": [{"role": "user", "content": "a"}]},
    "/v1/embeddings": {"model": "fake", "input": "a"},
    "/tokenize": {"messages": [{"role": "user", "content": "a"}]},
    "/detokenize": {"tokens": [1]},
}
"""A request for every route that takes one."""


def described_bodies():
    """The properties of each body, by path."""
    for path, item in document()["paths"].items():
        if "post" in item and "requestBody" in item["post"]:
            yield path, resolved(item["post"]["requestBody"]["content"]["application/json"]["schema"])["properties"]


def bounds():
    """Numbers that are just too small or too large, by path and property."""
    for path, properties in described_bodies():
        for name, schema in properties.items():
            for option in schema.get("anyOf", [schema]):
                integer = option.get("type") == "integer"
                for key, sign in (("minimum", -1), ("exclusiveMinimum", 0), ("maximum", 1)):
                    if key in option:
                        yield path, name, option[key] + sign * (1 if integer else 0.01)


async def test_there_is_a_request_for_every_body():
    assert BODIES.keys() == {path for path, _ in described_bodies()}


@pytest.mark.parametrize("path", BODIES)
async def test_only_fields_that_are_refused_are_left_out(http, path):
    (route,) = [route for route in http.app.app.routes if route.path == path]
    body = route.route_handlers[0].opt[OPERATION].body
    assert (await http.post(path, json=BODIES[path])).status_code == 200
    for name in left_out(body):
        response = await http.post(path, json={**BODIES[path], name: "something"})
        assert response.status_code == 400, name
        assert name in response.json()["error"]["message"]


def test_the_limits_of_the_engine_are_described():
    properties = dict(described_bodies())["/v1/chat/completions"]
    assert properties["temperature"]["anyOf"][0] == {"type": "number", "minimum": 0.0, "maximum": 2.0}
    assert properties["priority"]["anyOf"][0]["maximum"] == 2**31 - 1


async def test_what_is_beyond_a_limit_is_refused(http):
    cases = list(bounds())
    assert len(cases) > 50
    for path, name, value in cases:
        response = await http.post(path, json={**BODIES[path], name: value})
        assert response.status_code == 400, (path, name, value)
        assert name in response.json()["error"]["message"]


WRONG = {
    "an unknown status": (418, "application/json", b"{}"),
    "another media type": (200, "text/plain", b"a"),
    "another shape": (200, "application/json", b'{"version": 1}'),
    "another shape of an error": (500, "application/json", b'{"detail": "wrong"}'),
}


@pytest.mark.parametrize("answer", [*WRONG.values(), None], ids=[*WRONG, "nothing"])
async def test_the_comparison_notices(answer):
    status, media_type, body = answer or (200, "application/json", b'{"version": "1"}')

    async def app(scope, receive, send):
        headers = [(b"content-type", media_type.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    checked = Checked(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=checked), base_url="http://test") as client:
        await client.get("/version")
    assert bool(checked.problems) == (answer is not None)
