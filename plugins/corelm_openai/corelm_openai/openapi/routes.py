"""``GET /openapi.json``."""

import asyncio
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from corelm_openai.openapi.document import describe
from corelm_openai.openapi.operation import OPERATION, Operation
from corelm_openai.service import json_bytes


def openapi_routes(
    routes: Sequence[HTTPRouteHandler], root_path: str, *, asks_for_keys: bool
) -> list[HTTPRouteHandler]:
    """The description of `routes`, which lie below `root_path`, and of itself."""

    @get("/openapi.json", opt={OPERATION: Operation(summary="This description of the API", reply=dict[str, Any])})
    async def openapi() -> ASGIApp:
        return json_bytes(await asyncio.to_thread(document))

    @cache
    def document() -> bytes:
        return msgspec.json.encode(describe([*routes, openapi], root_path, asks_for_keys=asks_for_keys))

    return [openapi]
