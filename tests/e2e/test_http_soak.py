"""The soak of ``benchmarks/soak.py``, for a few seconds."""

import asyncio
import json
from importlib import import_module
from pathlib import Path

import pytest
from e2e_server import FAKE

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def soak(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("soak")


def test_a_hundred_streams_are_all_right(serve, soak, monkeypatch):
    monkeypatch.setattr(soak, "MAX_GROWTH", 1.5)  # a server that has just begun is still growing
    server = serve(**FAKE, CORELM_MAX_NUM_SEQS="100", CORELM_KV_CACHE_TOKENS="65536", CORELM_OPENAI_ACCESS_LOG="false")
    server.wait_ready()
    done = asyncio.run(soak.soak(server.url, 100, 3.0))
    assert done.problems == []
    assert done.done["complete"] > 100
    assert done.done["left"] > 0
    code, output = server.stop()
    assert code == 0
    assert "Traceback" not in output


REPLIES = {
    "somebody else's": [{"id": "a", "text": "x"}, {"id": "b", "text": "y", "end": True}],
    "cut": [{"id": "a", "text": "x"}],
    "wrong": [{"id": "a", "text": "x", "end": True}, "[DONE]"],
    "doubled": [{"id": "a", "text": "x", "end": True}, {"id": "a", "text": "x", "end": True}, "[DONE]"],
}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES.keys())
async def test_it_notices_what_is_not_right(soak, reply):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for item in reply:
            data = item if isinstance(item, str) else json.dumps(event(**item))
            writer.write(f"data: {data}\n\n".encode())
        writer.close()

    def event(id, text, end=False):
        return {"id": id, "choices": [{"text": text, "finish_reason": "length" if end else None}]}

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        one = soak.Soak(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", 1, 0.01)
        await one._work(3, asyncio.get_running_loop().time() + 0.01)
    assert one.problems
