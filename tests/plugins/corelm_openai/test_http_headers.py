import asyncio
import hmac

import pytest
from corelm_openai.app import create_app
from corelm_openai.hookspecs import OPEN
from corelm_openai.http.auth import BearerAuth
from corelm_openai.settings import OpenAISettings
from openai_http import Http, assert_error

KEYS = ["first-key", "zweiter-schlüssel"]


@pytest.fixture
async def guarded(engine):
    async with Http(engine, OpenAISettings(api_keys=KEYS, cors_origins=["https://app.example"])) as client:
        yield client


def routes(app):
    for route in app.routes:
        for method in route.methods:
            yield route, method


async def test_every_route_but_health_asks_for_a_key(guarded):
    checked = []
    for route, method in routes(guarded.app):
        path = route.path.replace("{name:path}", "fake")
        handler, _ = route.route_handler_map[method]
        for headers in ({}, {"authorization": "Bearer wrong"}):
            response = await guarded.request(method, path, headers=headers)
            if handler.opt.get(OPEN):
                assert response.status_code == 200
            else:
                assert_error(response, 401, code="invalid_api_key")
                assert response.headers["www-authenticate"] == "Bearer"
                checked.append(path)
    assert {"/v1/completions", "/v1/chat/completions", "/v1/models", "/v1/models/fake"} <= set(checked)
    assert [route.path for route, method in routes(guarded.app) if method == "GET"].count("/health") == 1


@pytest.mark.parametrize("path", ["//v1/completions", "/v1/completions/", "/v1//completions", "/%76%31/completions"])
async def test_other_spellings_of_a_path_ask_too(guarded, engine, path):
    response = await guarded.post(f"http://test{path}", json={"model": "fake", "prompt": "a"})
    assert response.status_code in (401, 404)
    assert not engine.calls


@pytest.mark.parametrize(
    "headers",
    [
        [("authorization", "first-key")],
        [("authorization", "Basic first-key")],
        [("authorization", "Bearer")],
        [("authorization", "Bearer ")],
        [("authorization", "Bearer first-key x")],
        [("authorization", "Bearer first-ke")],
        [("authorization", b"Bearer \xe2\x80\x9cfirst-key\xe2\x80\x9d")],
        [("authorization", b"\xff\xfe")],
        [("authorization", "Bearer " + "x" * 2**20)],
        [("authorization", "Bearer first-key"), ("authorization", "Bearer first-key")],
    ],
)
async def test_wrong_keys(guarded, headers):
    assert_error(await guarded.get("/v1/models", headers=headers), 401, code="invalid_api_key")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
@pytest.mark.parametrize("key", KEYS)
async def test_right_keys(guarded, scheme, key):
    headers = {"authorization": f"{scheme} {key}".encode()}
    assert (await guarded.get("/v1/models", headers=headers)).status_code == 200


def test_all_keys_are_compared_in_constant_time(monkeypatch):
    seen = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: seen.append((a, b)) or compare(a, b))
    assert BearerAuth(["one", "two"]).accepts(b"Bearer one")
    assert seen == [(b"one", b"one"), (b"one", b"two")]


def test_keys_are_not_shown(engine):
    settings = OpenAISettings(api_keys=KEYS)
    assert "first-key" not in repr(settings)
    with pytest.raises(ValueError, match="a key is empty"):
        OpenAISettings(api_keys=[""])


async def test_preflights_need_no_key(guarded):
    asked = {
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type",
    }
    response = await guarded.options("/v1/chat/completions", headers=asked)
    assert response.status_code == 204
    assert response.headers["access-control-allow-origin"] == "https://app.example"
    assert "POST" in response.headers["access-control-allow-methods"]
    allowed = response.headers["access-control-allow-headers"].lower()
    assert "authorization" in allowed
    assert "content-type" in allowed
    assert "access-control-allow-credentials" not in response.headers


async def test_replies_errors_and_streams_carry_cors_headers(guarded):
    origin = {"origin": "https://app.example"}
    key = {"authorization": "Bearer first-key"}
    for response in (
        await guarded.get("/v1/models", headers=origin),
        await guarded.get("/v1/nothing", headers=origin),
        await guarded.get("/v1/models", headers=origin | key),
        await guarded.post(
            "/v1/completions", json={"model": "fake", "prompt": "a", "stream": True}, headers=origin | key
        ),
    ):
        assert response.headers["access-control-allow-origin"] == "https://app.example"
    foreign = await guarded.get("/v1/models", headers={"origin": "https://evil.example"} | key)
    assert "access-control-allow-origin" not in foreign.headers


async def test_any_origin_never_comes_with_credentials(engine):
    async with Http(engine, OpenAISettings(cors_origins=["*"])) as http:
        response = await http.get("/v1/models", headers={"origin": "https://any.example"})
        assert response.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in response.headers


async def responses_of_all_kinds(http, headers):
    body = {"model": "fake", "prompt": "a"}
    yield 200, await http.get("/health", headers=headers)
    yield 200, await http.post("/v1/completions", json=body, headers=headers)
    yield 200, await http.post("/v1/completions", json=body | {"stream": True}, headers=headers)
    yield 400, await http.post("/v1/completions", json={}, headers=headers)
    yield 404, await http.get("/nothing", headers=headers)
    yield 405, await http.get("/v1/completions", headers=headers)


@pytest.mark.parametrize("given", ["mine", "A-b_c.9", "x" * 128])
async def test_request_ids_are_echoed(http, given):
    async for status, response in responses_of_all_kinds(http, {"x-request-id": given}):
        assert response.status_code == status
        assert response.headers.get_list("x-request-id") == [given]
        assert given not in response.text


@pytest.mark.parametrize("given", [None, "", "x" * 129, "x" * 2**20, b"\xc3\xa9", "a b", "a%0d%0ab", "a\tb"])
async def test_other_request_ids_are_replaced(http, given):
    seen = set()
    async for _, response in responses_of_all_kinds(http, {} if given is None else {"x-request-id": given}):
        (request_id,) = response.headers.get_list("x-request-id")
        assert request_id.isascii()
        assert len(request_id) < 64
        seen.add(request_id)
    assert len(seen) == 6


def test_nothing_else_is_served(engine, settings):
    paths = {route.path for route in create_app(engine, settings, asyncio.Event()).routes}
    assert paths == {"/health", "/v1/models", "/v1/models/{name:path}", "/v1/completions", "/v1/chat/completions"}
