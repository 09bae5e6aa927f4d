"""Noticing that a client has left."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from litestar.exceptions import ClientException
from litestar.types import Receive

T = TypeVar("T")


class ClientLeftError(ClientException):
    """The client closed the connection, so nobody reads this reply."""

    status_code = 499
    detail = "The client closed the connection."


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, whose request body has been read.

    Cancels it and raises `ClientLeftError` when the client leaves before that.
    """
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_disconnect(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientLeftError
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
