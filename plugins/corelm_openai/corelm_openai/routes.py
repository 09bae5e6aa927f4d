"""Every route. Each asks for an API key, if there are any, unless it is marked as open."""

from litestar.handlers import HTTPRouteHandler

from corelm_openai.anthropic.routes import messages_routes
from corelm_openai.chat.routes import chat_routes
from corelm_openai.completions.routes import completion_routes
from corelm_openai.embeddings.routes import embedding_routes
from corelm_openai.health import health_routes
from corelm_openai.model_routes import model_routes
from corelm_openai.responses.routes import responses_routes
from corelm_openai.service import Service
from corelm_openai.tokenizing.routes import tokenizing_routes
from corelm_openai.version import version_routes


def make_routes(service: Service) -> list[HTTPRouteHandler]:
    """The routes of this frontend."""
    return [
        *health_routes(service),
        *version_routes(),
        *model_routes(service),
        *completion_routes(service),
        *chat_routes(service),
        *responses_routes(service),
        *messages_routes(service),
        *embedding_routes(service),
        *tokenizing_routes(service),
    ]
