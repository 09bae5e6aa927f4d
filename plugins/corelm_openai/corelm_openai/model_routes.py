"""``GET /v1/models``."""

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from corelm_openai.models import ModelList, ModelObject, find_model, list_models
from corelm_openai.openapi.operation import OPERATION, Operation
from corelm_openai.service import HTTPRequest, Service, json_response


def model_routes(service: Service) -> list[HTTPRouteHandler]:
    """The served names, all or one."""

    @get("/v1/models", opt={OPERATION: Operation(summary="Every served name", reply=ModelList)})
    async def models() -> ASGIApp:
        return json_response(list_models(service.engine.model))

    @get(
        "/v1/models/{name:path}",
        opt={OPERATION: Operation(summary="One of them", reply=ModelObject, errors=[404, 503])},
    )
    async def model(request: HTTPRequest) -> ASGIApp:
        if not service.engine.model.names:
            await service.engine.check_health()
        return json_response(find_model(service.engine.model, request.path_params["name"].removeprefix("/")))

    return [models, model]
