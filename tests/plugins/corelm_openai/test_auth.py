"""Who is let in, by which key."""

import hashlib
import hmac
import logging
import re

import pytest
from corelm_openai.app import create_app
from corelm_openai.hookspecs import OPEN
from corelm_openai.http.auth import KeyAuth
from corelm_openai.settings import OpenAISettings
from openai_http import Http, assert_error

from corelm.api import ConfigurationError

KEYS = ["first-key", "zweiter-schlüssel"]
OPEN_PATHS = {"/health", "/health/live", "/health/ready"}


@pytest.fixture
async def guarded(engine):
    async with Http(engine, OpenAISettings(api_keys=KEYS)) as client:
        yield client


def routes(app):
    for route in app.app.routes:
        for method in route.methods:
            yield route, method


async def test_every_route_but_health_asks_for_a_key(guarded):
    opened, checked = set(), set()
    for route, method in routes(guarded.app):
        handler, _ = route.route_handler_map[method]
        path = re.sub(r"\{[^}]*\}", "fake", route.path)
        for headers in ({}, {"authorization": "Bearer wrong"}, {"x-api-key": "wrong"}):
            response = await guarded.request(method, path, headers=headers)
            if handler.opt.get(OPEN):
                assert response.status_code == 200
                opened.add(path)
            else:
                assert response.status_code == 401, f"{method} {path}"
                assert response.json()["error"]["message"].startswith("Missing or wrong API key")
                assert response.headers["www-authenticate"] == "Bearer"
                checked.add(path)
    assert opened == OPEN_PATHS
    assert {"/v1/completions", "/v1/chat/completions", "/v1/models", "/v1/models/fake", "/metrics"} <= checked


async def test_a_refusal_has_openais_shape(guarded):
    assert_error(await guarded.get("/v1/models"), 401, code="invalid_api_key")


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
        [("x-api-key", "")],
        [("x-api-key", "Bearer first-key")],
        [("x-api-key", "first-key"), ("x-api-key", "first-key")],
        [("api-key", "first-key")],
    ],
)
async def test_wrong_keys(guarded, headers):
    assert_error(await guarded.get("/v1/models", headers=headers), 401, code="invalid_api_key")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
@pytest.mark.parametrize("key", KEYS)
async def test_right_keys(guarded, scheme, key):
    headers = {"authorization": f"{scheme} {key}".encode()}
    assert (await guarded.get("/v1/models", headers=headers)).status_code == 200
    assert (await guarded.get("/v1/models", headers={"x-api-key": key.encode()})).status_code == 200


async def test_one_right_key_is_enough(guarded):
    for headers in ({"x-api-key": "first-key", "authorization": "Bearer x"}, {"x-api-key": "x"}):
        both = {"authorization": "Bearer first-key"} | headers
        assert (await guarded.get("/v1/models", headers=both)).status_code == 200


def test_all_keys_are_compared_in_constant_time(monkeypatch):
    seen = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: seen.append((a, b)) or compare(a, b))
    assert KeyAuth(["one", "two"]).accepted([(b"authorization", b"Bearer one")]) == b"one"
    one, two = (hashlib.sha256(key).digest() for key in (b"one", b"two"))
    assert seen == [(one, one), (one, two)]


async def test_keys_are_not_shown(caplog, engine):
    caplog.set_level(logging.DEBUG)
    settings = OpenAISettings(api_keys=KEYS, open_metrics=True, log_requests_max_chars=1000)
    assert "first-key" not in repr(settings)
    async with Http(engine, settings) as http:
        await http.get("/v1/models?key=first-key", headers={"authorization": "Bearer first-key"})
        await http.get("/v1/models", headers={"authorization": "Bearer wrong-key"})
        assert "-key" not in (await http.get("/metrics")).text
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("corelm")]
    assert len(logged) == 3
    assert "-key" not in "".join(logged)
    with pytest.raises(ValueError, match="a key is empty"):
        OpenAISettings(api_keys=[""])


@pytest.fixture
def key_file(tmp_path):
    return tmp_path / "keys"


async def test_keys_can_come_from_a_file(engine, key_file):
    key_file.write_text("# two users\n\nfile-one\n  file-zwei-ü \n#file-three\n", encoding="utf-8")
    async with Http(engine, OpenAISettings(api_keys=["first-key"], api_keys_file=key_file)) as http:
        for key in ("first-key", "file-one", "file-zwei-ü"):
            assert (await http.get("/v1/models", headers={"x-api-key": key.encode()})).status_code == 200
        for key in ("file-three", "#file-three", "# two users", ""):
            assert (await http.get("/v1/models", headers={"x-api-key": key})).status_code == 401


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot read .*: No such file or directory"),
        (b"", "there is no key in"),
        (b"# all gone\n\n", "there is no key in"),
        (b"\xff\xfe", "it is not text in UTF-8"),
    ],
)
async def test_a_file_without_keys_never_opens_the_server(engine, key_file, stop, content, reason):
    if content is not None:
        key_file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=reason) as caught:
        create_app(engine, OpenAISettings(api_keys_file=key_file), stop)
    assert str(caught.value).startswith("openai.api_keys_file: ")
    assert "\n" not in str(caught.value)


async def test_a_key_stands_for_its_owner_unless_the_request_names_somebody(guarded, engine):
    key = {"x-api-key": "first-key"}
    body = {"model": "fake", "prompt": "a"}
    await guarded.post("/v1/completions", json=body, headers=key)
    await guarded.post("/v1/completions", json=body, headers={"authorization": f"Bearer {KEYS[1]}".encode()})
    await guarded.post("/v1/completions", json=body | {"user": "u"}, headers=key)
    await guarded.post("/v1/completions", json=body, headers=key | {"x-corelm-tenant": "t"})
    tenants = [call["options"].tenant for call in engine.calls]
    assert tenants[0] == hashlib.sha256(b"first-key").hexdigest()[:12]
    assert tenants[1] not in (tenants[0], None)
    assert tenants[2:] == ["u", "t"]


async def test_without_keys_nobody_is_asked_and_nobody_is_known(http, engine):
    response = await http.post(
        "/v1/completions", json={"model": "fake", "prompt": "a"}, headers={"x-api-key": "anything"}
    )
    assert response.status_code == 200
    assert engine.calls[0]["options"].tenant is None
