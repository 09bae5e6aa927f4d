"""The reply of ``/v1/embeddings``."""

import base64
import math
import struct
from collections.abc import Sequence

import msgspec

from corelm.api import Embedding
from corelm_openai.generation.envelopes import PromptTokensDetails


class EmbeddingObject(msgspec.Struct, frozen=True, kw_only=True):
    """The embedding of one prompt."""

    object: str = "embedding"
    index: int
    embedding: Sequence[float] | str
    """Numbers, or the same as float32 in little-endian order, in base64."""


class EmbeddingUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of all prompts."""

    prompt_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class EmbeddingList(msgspec.Struct, frozen=True, kw_only=True):
    """The reply."""

    object: str = "list"
    data: list[EmbeddingObject]
    model: str
    usage: EmbeddingUsage


def encode_reply(model: str, embeddings: Sequence[Embedding], dimensions: int | None, as_base64: bool) -> bytes:
    """The body, with the first `dimensions` numbers of each embedding, brought to length 1 again."""
    prompt_tokens = sum(embedding.prompt_tokens for embedding in embeddings)
    cached_tokens = sum(embedding.cached_tokens for embedding in embeddings)
    reply = EmbeddingList(
        data=[
            EmbeddingObject(index=index, embedding=_shown(shortened(embedding.data, dimensions), as_base64))
            for index, embedding in enumerate(embeddings)
        ],
        model=model,
        usage=EmbeddingUsage(
            prompt_tokens=prompt_tokens,
            total_tokens=prompt_tokens,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=cached_tokens),
        ),
    )
    return msgspec.json.encode(reply)


def shortened(data: bytes, dimensions: int | None) -> bytes:
    """The first `dimensions` of the numbers in `data`, divided by their Euclidean length."""
    if dimensions is None:
        return data
    numbers = _numbers(data[: 4 * dimensions])
    length = math.hypot(*numbers) or 1.0
    return struct.pack(f"<{dimensions}f", *(number / length for number in numbers))


def _shown(data: bytes, as_base64: bool) -> Sequence[float] | str:
    return base64.b64encode(data).decode() if as_base64 else _numbers(data)


def _numbers(data: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(data) // 4}f", data)
