"""CORS and request ids."""

import pytest
from corelm_openai.app import create_app
from corelm_openai.settings import OpenAISettings
from openai_http import Http


@pytest.fixture
async def guarded(engine):
    async with Http(engine, OpenAISettings(api_keys=["first-key"], cors_origins=["https://app.example"])) as client:
        yield client


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


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/responses", {"input": "a"}),
        ("/v1/responses", {"input": "a", "background": True}),
        ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "a"}]}),
    ],
)
async def test_a_stream_has_no_header_of_the_one_before(guarded, path, body):
    key = {"authorization": "Bearer first-key"}
    found = []
    for origin in ("https://app.example", "https://evil.example", None):
        headers = key | ({"origin": origin} if origin else {})
        found.append(await guarded.post(path, json={"model": "fake", "stream": True, **body}, headers=headers))
    trusted, foreign, none = (response.headers for response in found)
    assert trusted["access-control-allow-origin"] == "https://app.example"
    assert "access-control-allow-origin" not in foreign
    assert not [name for name in none if name.startswith("access-control")]
    assert len({response["x-request-id"] for response in (trusted, foreign, none)}) == 3


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


PATHS = {
    "/detokenize",
    "/health",
    "/health/live",
    "/health/ready",
    "/metrics",
    "/openapi.json",
    "/tokenize",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/models",
    "/v1/models/{name:path}",
    "/v1/responses",
    "/v1/responses/{response_id:str}",
    "/v1/responses/{response_id:str}/cancel",
    "/v1/responses/{response_id:str}/input_items",
    "/version",
}


def test_nothing_else_is_served(engine, settings, stop):
    assert {route.path for route in create_app(engine, settings, stop).app.routes} == PATHS
