"""What both generating endpoints take: the fields, and how they become `SamplingParams`.

Fields that are not listed here are ignored, as are those that cannot change the text (``metadata``, ``store``,
``service_tier``). ``null`` always means the default.
"""

from typing import Annotated, Any

import msgspec

from corelm.api import InvalidRequestError, SamplingParams
from corelm_openai.unsupported import Unsupported

_UINT64 = 2**64
Priority = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


class StreamOptions(msgspec.Struct, kw_only=True):
    """Options of a streamed reply."""

    include_usage: bool | None = None


class GenerationBody(Unsupported, kw_only=True):
    """Fields of both endpoints."""

    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    skip_special_tokens: bool | None = None
    ignore_eos: bool | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    priority: Priority | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def sampling(self, *, max_n: int, max_tokens: int | None) -> list[SamplingParams]:
        """The sampling parameters of each choice of a prompt, checked like everything else that both endpoints share.

        Choice i gets the seed plus i, so that choices differ and can be had again.
        """
        n = 1 if self.n is None else self.n
        if not 1 <= n <= max_n:
            raise InvalidRequestError(f"n must be between 1 and {max_n}", param="n")
        if self.stream_options is not None and not self.stream:
            raise InvalidRequestError("stream_options is only allowed when stream is true", param="stream_options")
        self.refuse_unsupported(n)
        stop_token_ids = tuple(self.stop_token_ids or ())
        first = SamplingParams(
            max_tokens=max_tokens, stop=self._stops(), stop_token_ids=stop_token_ids, **self._given()
        )
        if self.seed is None:
            return [first] * n
        return [msgspec.structs.replace(first, seed=_wrap(self.seed + index)) for index in range(n)]

    def _stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    def _given(self) -> dict[str, Any]:
        names = ("temperature", "top_p", "top_k", "min_p", "seed", "ignore_eos", "skip_special_tokens")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def _wrap(seed: int) -> int:
    """Bring a seed back into the signed 64-bit range."""
    return (seed + _UINT64 // 2) % _UINT64 - _UINT64 // 2
