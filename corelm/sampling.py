"""Per-request generation parameters, validated once, here."""

from typing import Any

import msgspec

from corelm.errors import InvalidRequestError

MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 1024
SEED_RANGE = range(-(2**63), 2**63)
GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: dividing by them would overflow."""


def _refuse(param: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(f"{param} {message}", param=param)


def _check_int(param: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refuse(param, f"must be an integer, not {type(value).__name__}")
    if not low <= value <= high:
        raise _refuse(param, f"must be between {low} and {high}")


def _check_float(param: str, value: Any, low: float, high: float, *, open_low: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse(param, f"must be a number, not {type(value).__name__}")
    above = value > low if open_low else value >= low
    if not (above and value <= high):  # so written, NaN is refused too
        bracket = "(" if open_low else "["
        raise _refuse(param, f"must be a finite number in {bracket}{low:g}, {high:g}]")


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How to pick tokens and when to stop.

    Raises `InvalidRequestError`, whose `param` names the field, on any value out of range.
    """

    temperature: float = 1.0
    """0 to 2. Below 1e-5 decoding is greedy: the most probable token, ties to the lowest id."""
    top_p: float = 1.0
    """Nucleus: keep the smallest set of tokens whose probability reaches this, in (0, 1]."""
    top_k: int = -1
    """Keep only this many most probable tokens; -1 or 0 keeps all."""
    min_p: float = 0.0
    """Drop tokens less probable than this fraction of the most probable one, in [0, 1]."""
    seed: int | None = None
    """64-bit seed. With one, the tokens depend on nothing but the request itself."""
    max_tokens: int | None = None
    """At most this many new tokens; None means as many as the context holds."""
    stop: tuple[str, ...] = ()
    """Generation ends before the first of these strings; the string itself is not returned."""
    stop_token_ids: tuple[int, ...] = ()
    """Generation ends at any of these tokens, besides the model's own end tokens."""
    ignore_eos: bool = False
    """Do not end at the model's end tokens (benchmarks)."""
    skip_special_tokens: bool = True
    """Leave special tokens out of the text."""

    def __post_init__(self) -> None:
        _check_float("temperature", self.temperature, 0.0, 2.0)
        _check_float("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _check_int("top_k", self.top_k, -1, 2**31 - 1)
        _check_float("min_p", self.min_p, 0.0, 1.0)
        if self.seed is not None:
            _check_int("seed", self.seed, SEED_RANGE.start, SEED_RANGE.stop - 1)
        if self.max_tokens is not None:
            _check_int("max_tokens", self.max_tokens, 1, 2**31 - 1)
        self._check_stop()

    def _check_stop(self) -> None:
        if not isinstance(self.stop, tuple | list) or len(self.stop) > MAX_STOP_STRINGS:
            raise _refuse("stop", f"must be a list of at most {MAX_STOP_STRINGS} strings")
        for text in self.stop:
            if not isinstance(text, str):
                raise _refuse("stop", f"must hold strings, not {type(text).__name__}")
            if not 0 < len(text) <= MAX_STOP_LENGTH:
                raise _refuse("stop", f"strings must have 1 to {MAX_STOP_LENGTH} characters")
        if not isinstance(self.stop_token_ids, tuple | list) or len(self.stop_token_ids) > MAX_STOP_STRINGS:
            raise _refuse("stop_token_ids", f"must be a list of at most {MAX_STOP_STRINGS} token ids")
        for token in self.stop_token_ids:
            _check_int("stop_token_ids", token, 0, 2**31 - 1)

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is always taken."""
        return self.temperature < GREEDY_BELOW
