"""Sources of structured outputs that are wrong, before a whole server: only who sends them hears of it."""

import itertools
import threading

import httpx
import pytest
from e2e_server import FAKE

GOOD = {
    "plain": {},
    "json": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [20_000_000_000]}}}
    },
    "regex": {"structured_outputs": {"regex": "[ab]{3}"}},
    "grammar": {"structured_outputs": {"grammar": 'start: "a" | "b"'}},
}
SCHEMAS = [
    {"properties": {"a": "string"}},
    {"type": "array", "items": [{"type": "string"}, 3]},
    {"type": "integer", "minimum": 3, "maximum": 1},
    {"$ref": "#/$defs/missing"},
    {"not": {}},
    {"type": "string", "pattern": "("},
    {"allOf": [{"type": "object", "properties": {f"p{number}": {} for number in range(3000)}}]},
    False,
]
BAD = [
    *(
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}
        for schema in SCHEMAS
    ),
    *({"structured_outputs": {"regex": regex}} for regex in ("(", "[a-", r"(a)\1", "(?<=a)b", "a" * 2**20, "a\\")),
    {"structured_outputs": {"grammar": "start: missing"}},
    {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": 3}}}}]},
]


@pytest.fixture
def client(serve):
    server = serve(**FAKE, CORELM_FAKE_STEP_S="0.002")
    server.wait_ready()
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client
    code, output = server.stop()
    assert code == 0
    assert "Traceback" not in output


def ask(client, **body):
    messages = [{"role": "user", "content": "hi"}]
    defaults = {"model": "fake", "messages": messages, "max_tokens": 16, "temperature": 0}
    return client.post("/v1/chat/completions", json=defaults | body)


def text(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["message"]["content"]


def idle(client):
    figures = client.get("/metrics").text.splitlines()
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    return all(line.endswith(" 0.0") for line in figures if line.startswith(tuple(f"corelm:{name}" for name in names)))


def test_what_is_wrong_is_refused_twice_while_another_client_reads(client):
    alone = text(ask(client, max_tokens=1500))
    heard = []
    other = threading.Thread(target=lambda: heard.append(text(ask(client, max_tokens=1500))))
    other.start()
    for body, stream, _ in itertools.product(BAD, (False, True), range(2)):
        choice = {"tool_choice": "required"} if "tools" in body else {}
        refused = ask(client, stream=stream, **body, **choice)
        assert refused.status_code == 400, (body, refused.text)
        param = refused.json()["error"]["param"]
        assert param.startswith("tool_choice" if choice else next(iter(body))), refused.text
        assert client.get("/health").status_code == 200
    other.join()
    assert heard == [alone]
    assert text(ask(client, max_tokens=1500)) == alone
    assert idle(client)


def test_what_came_before_makes_no_difference(client):
    """All ordered pairs of good and bad ones of every kind."""
    bad = {"bad json": BAD[0], "bad regex": BAD[len(SCHEMAS)], "bad grammar": BAD[-2]}
    first = {name: ask(client, **body).json().get("choices") for name, body in (GOOD | bad).items()}
    assert [name for name, choices in first.items() if choices is None] == list(bad)
    for before, after in itertools.product(GOOD | bad, repeat=2):
        ask(client, **(GOOD | bad)[before])
        assert ask(client, **(GOOD | bad)[after]).json().get("choices") == first[after], (before, after)
    assert idle(client)
