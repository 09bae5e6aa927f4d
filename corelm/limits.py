"""Limits of numbers: stated once, in the type of a field, and checked from there."""

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from corelm.errors import InvalidRequestError


def refuse(param: str, message: str) -> InvalidRequestError:
    """The error for a parameter, whose name begins the message."""
    return InvalidRequestError(f"{param} {message}", param=param)


def check_int(param: str, value: Any, low: int, high: int) -> None:
    """Raise `InvalidRequestError` unless `value` is an integer in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise refuse(param, f"must be an integer, not {type(value).__name__}")
    if not low <= value <= high:
        raise refuse(param, f"must be between {low} and {high}")


def check_float(param: str, value: Any, low: float, high: float, *, open_low: bool = False) -> None:
    """Raise `InvalidRequestError` unless `value` is a number in [low, high], or (low, high] with `open_low`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse(param, f"must be a number, not {type(value).__name__}")
    above = value > low if open_low else value >= low
    if not (above and value <= high):  # so written, NaN is refused too
        bracket = "(" if open_low else "["
        raise refuse(param, f"must be a finite number in {bracket}{low:g}, {high:g}]")


def check_limits(struct: msgspec.Struct, prefix: str = "") -> None:
    """Check every field whose type is like ``Annotated[int, Meta(ge=1, le=8)]``, or that or None.

    Raises `InvalidRequestError`, whose `param` is the field's name after `prefix`.
    """
    for name, number, limits, optional in _limited_fields(type(struct)):
        value = getattr(struct, name)
        if value is None and optional:
            continue
        if number is int:
            check_int(prefix + name, value, limits.ge, limits.le)
        else:
            low = limits.ge if limits.gt is None else limits.gt
            check_float(prefix + name, value, low, limits.le, open_low=limits.gt is not None)


class _Limited(NamedTuple):
    name: str
    number: type
    limits: Any
    optional: bool


@cache
def _limited_fields(cls: type) -> tuple[_Limited, ...]:
    return tuple(_find_limited(cls))


def _find_limited(cls: type) -> Iterator[_Limited]:
    for name, hint in get_type_hints(cls, include_extras=True).items():
        optional = type(None) in get_args(hint)
        for option in get_args(hint) if optional else (hint,):
            if get_origin(option) is Annotated:
                number, limits = get_args(option)
                if number in (int, float) and isinstance(limits, Meta):
                    yield _Limited(name, number, limits, optional)
