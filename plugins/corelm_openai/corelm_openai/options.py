"""What bodies and headers of requests tell the scheduler and the prefix cache."""

from collections.abc import Mapping
from typing import Protocol

from corelm.api import RequestOptions
from corelm_openai.http.errors import renaming
from corelm_openai.settings import OpenAISettings


class OptionFields(Protocol):
    """Fields of a body."""

    user: str | None
    priority: int | None
    deadline_s: float | None
    cache_salt: str | None
    prefix_cache: bool | None


def request_options(body: OptionFields, settings: OpenAISettings, headers: Mapping[str, str]) -> RequestOptions:
    """The options of a request. Raises `InvalidRequestError`, which names the field or header that is wrong."""
    tenant = headers.get(settings.tenant_header)
    fields = {name: getattr(body, name) for name in ("priority", "deadline_s", "cache_salt", "prefix_cache")}
    with renaming({"tenant": settings.tenant_header if tenant else "user", "session": settings.session_header}):
        return RequestOptions(
            tenant=tenant or body.user,
            session=headers.get(settings.session_header) or None,
            **{name: value for name, value in fields.items() if value is not None},
        )
