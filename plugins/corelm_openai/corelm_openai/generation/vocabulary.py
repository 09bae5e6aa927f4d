"""What tokens stand for."""

from collections.abc import Iterable
from typing import NamedTuple

from corelm.api import EngineClient


class Token(NamedTuple):
    """One token of the vocabulary."""

    raw: bytes
    """What it stands for; part of a character, perhaps."""
    text: str
    """The same as a string: its characters, or like ``bytes:\\xe2\\x80`` if the bytes are not whole ones."""


def token(raw: bytes) -> Token:
    """The token that stands for these bytes."""
    try:
        return Token(raw, raw.decode())
    except UnicodeDecodeError:
        return Token(raw, "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw))


class Vocabulary:
    """The tokens of the engine's model. Each is asked for once, in `learn`, and is known from then on."""

    def __init__(self, engine: EngineClient) -> None:
        self._engine = engine
        self._tokens: dict[int, Token] = {}

    async def learn(self, token_ids: Iterable[int]) -> None:
        """Ask the engine for those of the tokens that are not known yet."""
        missing = list({token_id for token_id in token_ids if token_id not in self._tokens})
        if missing:
            found = await self._engine.token_bytes(missing)
            self._tokens.update(zip(missing, map(token, found), strict=True))

    def __getitem__(self, token_id: int) -> Token:
        return self._tokens[token_id]
