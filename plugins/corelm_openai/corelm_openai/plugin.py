"""The entry point: registers the frontend "openai"."""

from corelm.api import Frontend, FrontendContext, Register, hookimpl
from corelm_openai.settings import OpenAISettings


def make_frontend(context: FrontendContext) -> Frontend:
    """Build the frontend. The web framework is imported here, once it is needed."""
    from corelm_openai.frontend import OpenAIFrontend

    return OpenAIFrontend(context.settings or OpenAISettings())


@hookimpl
def corelm_register_frontends(register: Register[FrontendContext, Frontend]) -> None:
    register(
        "openai",
        make_frontend,
        settings=OpenAISettings,
        summary="OpenAI-compatible HTTP API (completions, chat, models)",
    )
