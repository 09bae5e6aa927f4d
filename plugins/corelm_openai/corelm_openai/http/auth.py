"""API keys."""

import hashlib
import hmac
from collections.abc import Iterable, Iterator
from pathlib import Path

from litestar.exceptions import NotAuthorizedException
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Receive, Scope, Send

from corelm.api import ConfigurationError
from corelm_openai.hookspecs import OPEN
from corelm_openai.settings import OpenAISettings

IDENTITY = "corelm_key"
"""Where the scope of a request has the `identity` of the key that let it in; None if no key was asked for."""
IDENTITY_DIGITS = 12


def known_keys(settings: OpenAISettings) -> list[str]:
    """The keys of the settings and of the file they name. Raises `ConfigurationError`."""
    keys = [key.get_secret_value() for key in settings.api_keys]
    return keys if settings.api_keys_file is None else keys + _keys_in(settings.api_keys_file)


def _keys_in(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise ConfigurationError(f"openai.api_keys_file: cannot read {path}: {reason}") from error
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise ConfigurationError(f"openai.api_keys_file: there is no key in {path}")
    return keys


def identity(key: bytes) -> str:
    """What stands for a key where people or other keys' users may look: the beginning of its SHA-256 digest."""
    return hashlib.sha256(key).hexdigest()[:IDENTITY_DIGITS]


class KeyAuth(ASGIMiddleware):
    """Asks for one of `keys`, as ``Authorization: Bearer <key>`` or ``x-api-key: <key>``."""

    exclude_opt_key = OPEN

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        key = self.accepted(scope["headers"])
        if key is None:
            raise NotAuthorizedException(
                "Missing or wrong API key; send it as 'Authorization: Bearer <key>' or 'x-api-key: <key>'.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        scope[IDENTITY] = identity(key)  # type: ignore[literal-required]
        await next_app(scope, receive, send)

    def accepted(self, headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
        """The known key that was sent, if it was sent once in either way."""
        return next((key for key in _sent(list(headers)) if self._knows(key)), None)

    def _knows(self, key: bytes) -> bool:
        """Takes equally long whichever key it is, and however much of it is right."""
        digest = hashlib.sha256(key).digest()
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(matches)


def _sent(headers: list[tuple[bytes, bytes]]) -> Iterator[bytes]:
    bearer = [value.strip() for name, value in headers if name == b"authorization"]
    plain = [value.strip() for name, value in headers if name == b"x-api-key"]
    if len(bearer) == 1:
        scheme, _, token = bearer[0].partition(b" ")
        if scheme.lower() == b"bearer":
            yield token.strip()
    if len(plain) == 1:
        yield plain[0]
