import math

import pytest

from corelm.api import InvalidRequestError, SamplingParams


@pytest.mark.parametrize(
    ("param", "value"),
    [
        *[("temperature", v) for v in (-0.1, 2.1, math.nan, math.inf, "1", True)],
        *[("top_p", v) for v in (0, -1, 1.01, math.nan, None)],
        *[("top_k", v) for v in (-5, 1.5, True, 2**40)],
        *[("min_p", v) for v in (-0.1, 1.1, math.nan)],
        *[("seed", v) for v in (2**70, -(2**64), 1.0, "1")],
        *[("max_tokens", v) for v in (-1, 1.5, 2**40)],
        *[("stop", v) for v in ("x", ("",), ("a",) * 17, (1,), ("x" * 5000,))],
        *[("stop_token_ids", v) for v in ((-1,), (True,), (1,) * 17)],
    ],
)
def test_a_bad_value_is_refused_by_name(param, value):
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{param: value})
    assert caught.value.param == param
    assert param in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": 0},
        {"temperature": 2, "top_p": 1, "top_k": -1},
        {"top_k": 0},
        {"top_k": 1, "min_p": 1},
        {"seed": -(2**63)},
        {"seed": 2**63 - 1},
    ],
)
def test_limits_are_allowed(values):
    SamplingParams(**values)


def test_tiny_temperatures_are_greedy():
    assert SamplingParams(temperature=1e-12).greedy
    assert SamplingParams(temperature=0).greedy
    assert not SamplingParams(temperature=0.1).greedy
