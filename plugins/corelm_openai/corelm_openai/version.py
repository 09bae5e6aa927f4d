"""``GET /version``."""

from importlib.metadata import version

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from corelm_openai.openapi.operation import OPERATION, Operation
from corelm_openai.service import json_response


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """What runs."""

    version: str


def version_routes() -> list[HTTPRouteHandler]:
    """Which corelm serves."""
    reply = Version(version=version("corelm"))

    @get("/version", opt={OPERATION: Operation(summary="Which corelm serves", reply=Version)})
    async def corelm_version() -> ASGIApp:
        return json_response(reply)

    return [corelm_version]
