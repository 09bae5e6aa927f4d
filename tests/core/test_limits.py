"""Limits that the types of fields state."""

import math
from typing import Annotated, get_args, get_type_hints

import msgspec
import pytest
from msgspec import Meta

from corelm.api import InvalidRequestError, RequestOptions, SamplingParams
from corelm.limits import check_limits


class Limited(msgspec.Struct, kw_only=True):
    count: Annotated[int, Meta(ge=1, le=8)] = 1
    ratio: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    free: int = 0


@pytest.mark.parametrize("values", [{}, {"count": 8, "ratio": 1}, {"ratio": 1e-9, "free": -5}])
def test_what_keeps_to_them(values):
    check_limits(Limited(**values))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("count", value) for value in (0, 9, 1.0, "1", True, None)],
        *[("ratio", value) for value in (0, 1.1, math.nan, math.inf, "1", False)],
    ],
)
def test_what_does_not_is_refused_by_name(name, value):
    with pytest.raises(InvalidRequestError, match=f"^of.{name} ") as caught:
        check_limits(Limited(**{name: value}), "of.")
    assert caught.value.param == f"of.{name}"


@pytest.mark.parametrize("kind", [SamplingParams, RequestOptions])
def test_requests_are_held_to_them(kind):
    limits = {
        name: meta
        for name, hint in get_type_hints(kind, include_extras=True).items()
        for option in (hint, *get_args(hint))
        for meta in getattr(option, "__metadata__", ())
    }
    assert limits
    for name, meta in limits.items():
        with pytest.raises(InvalidRequestError, match=f"^{name} "):
            kind(**{name: meta.le + 1})
