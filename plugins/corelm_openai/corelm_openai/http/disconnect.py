"""Work that ends early, as when a client has left."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from litestar.exceptions import ClientException
from litestar.types import Receive

from corelm_openai.http.exchanges import CLIENT_LEFT

T = TypeVar("T")


class ClientLeftError(ClientException):
    """The client closed the connection, so nobody reads this reply."""

    status_code = CLIENT_LEFT
    detail = "The client closed the connection."


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, whose request body has been read. `ClientLeftError` if the client leaves before that."""
    return await unless(_disconnect(receive), ClientLeftError(), work)


async def unless(happens: Coroutine[Any, Any, object], error: Exception, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; or, if something `happens` before that, cancel it and raise `error`."""
    working = asyncio.create_task(work)
    happening = asyncio.create_task(happens)
    try:
        await asyncio.wait((working, happening), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise error
    finally:
        working.cancel()
        happening.cancel()
        await asyncio.gather(working, happening, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
