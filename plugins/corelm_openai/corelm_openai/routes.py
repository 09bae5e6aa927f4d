"""Every route. Each asks for an API key, if there are any, unless it is marked as open."""

from litestar.handlers import HTTPRouteHandler

from corelm_openai.chat.routes import chat_routes
from corelm_openai.completions.routes import completion_routes
from corelm_openai.health import health_routes
from corelm_openai.model_routes import model_routes
from corelm_openai.service import Service


def make_routes(service: Service) -> list[HTTPRouteHandler]:
    """The routes of this frontend."""
    return [
        *health_routes(service),
        *model_routes(service),
        *completion_routes(service),
        *chat_routes(service),
    ]
