"""API keys."""

import hmac
from collections.abc import Iterable

from litestar.exceptions import NotAuthorizedException
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Receive, Scope, Send

from corelm_openai.hookspecs import OPEN


class BearerAuth(ASGIMiddleware):
    """Asks for ``Authorization: Bearer <key>`` with one of `keys`."""

    exclude_opt_key = OPEN

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = [key.encode() for key in keys]

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1 or not self.accepts(given[0]):
            raise NotAuthorizedException(
                "Missing or wrong API key; send it as 'Authorization: Bearer <key>'.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        await next_app(scope, receive, send)

    def accepts(self, header: bytes) -> bool:
        """Whether the header's value holds a known key. Takes equally long whichever key it is."""
        scheme, _, token = header.strip().partition(b" ")
        matches = [hmac.compare_digest(token.strip(), key) for key in self._keys]
        return scheme.lower() == b"bearer" and any(matches)
