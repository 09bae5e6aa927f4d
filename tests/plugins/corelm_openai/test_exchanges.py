"""What is known of a request when it has ended."""

import pytest
from corelm_openai.http.exchanges import Exchanges, exchange_of

SCOPE = {"type": "http", "method": "GET", "raw_path": b"/", "client": None}


async def nothing(message):
    pass


async def answer(scope, receive, send):
    exchange_of(scope).model = "m"
    await send({"type": "http.response.start", "status": 201, "headers": []})
    await send({"type": "http.response.body", "body": b"x", "more_body": True})
    await send({"type": "http.response.body"})


async def fail(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    raise ValueError("a bug")


async def test_listeners_hear_of_an_exchange_once_it_has_ended():
    ended, sent = [], []

    async def send(message):
        assert not ended
        sent.append(message)

    await Exchanges(answer, [ended.append])({**SCOPE, "headers": [(b"x-request-id", b"mine")]}, nothing, send)
    [exchange] = ended
    assert (exchange.status, exchange.client_left, exchange.route, exchange.model) == (201, False, "other", "m")
    assert exchange.seconds > 0
    assert dict(sent[0]["headers"])[b"x-request-id"] == b"mine"


async def test_they_also_hear_of_what_ended_badly():
    ended = []
    with pytest.raises(ValueError, match="a bug"):
        await Exchanges(fail, [ended.append])({**SCOPE, "headers": []}, nothing, nothing)
    assert ended[0].client_left


async def test_a_listener_that_fails_is_logged_and_harms_nobody(caplog):
    ended = []

    def broken(exchange):
        raise ValueError("a bug")

    await Exchanges(answer, [broken, ended.append])({**SCOPE, "headers": []}, nothing, nothing)
    assert len(ended) == 1
    assert [record.exc_info[0] for record in caplog.records] == [ValueError]
