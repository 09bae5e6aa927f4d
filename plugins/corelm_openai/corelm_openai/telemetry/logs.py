"""A line of log for each HTTP request, and what was in it if that is wanted."""

import logging

from corelm_openai.http.auth import IDENTITY
from corelm_openai.http.exchanges import Exchange

access_logger = logging.getLogger("corelm_openai.access")
body_logger = logging.getLogger("corelm_openai.requests")

MAX_PATH = 200


def log_access(exchange: Exchange) -> None:
    """Say what was asked and what became of it. Good news from routes that are asked all the time is not worth it."""
    level = logging.DEBUG if exchange.quiet else logging.INFO
    if access_logger.isEnabledFor(level):
        access_logger.log(level, "%s", _line(exchange))


def log_body(exchange: Exchange, body: bytes, most: int) -> None:
    """Write down the first `most` characters of what a client sent."""
    text = body[: 4 * most].decode(errors="replace")
    rest = "..." if len(text) > most or len(body) > 4 * most else ""
    body_logger.info("request=%s body=%s%s", exchange.request_id, _plain(text[:most]), rest)


def _line(exchange: Exchange) -> str:
    scope, work = exchange.scope, exchange.work
    client = scope["client"][0] if scope["client"] else "-"
    path = _plain(scope["raw_path"].decode("latin-1")[:MAX_PATH])
    parts = [f'{client} "{_plain(scope["method"])} {path}" {exchange.status} {exchange.seconds:.3f}s']
    parts.append(f"request={exchange.request_id}")
    if key := scope.get(IDENTITY):
        parts.append(f"key={key}")
    if work is not None:
        prompt, completion = work.tokens()
        parts.append(f"reply={work.reply_id} in={prompt} out={completion}")
    if exchange.client_left:
        parts.append("the client left")
    return " ".join(parts)


def _plain(text: str) -> str:
    """The text on one line, without anything that a terminal could take for a command."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
