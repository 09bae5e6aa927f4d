"""`best_of` and beam search."""

import pytest
from openai_http import assert_error

from corelm.api import BeamSearch, InvalidRequestError, SamplingParams


async def test_best_of(http, engine):
    response = await http.complete(n=2, best_of=4)
    assert [choice["index"] for choice in response.json()["choices"]] == [0, 1]
    assert engine.calls[0]["params"] == SamplingParams(n=2, best_of=4, max_tokens=16)


@pytest.mark.parametrize("stream", [False, True])
async def test_best_of_as_many_as_n_chooses_nothing(http, engine, stream):
    assert (await http.complete(n=2, best_of=2, stream=stream)).status_code == 200
    assert (await http.chat(n=2, best_of=2, stream=stream)).status_code == 200
    assert [call["params"].best_of for call in engine.calls] == [None, None]


@pytest.mark.parametrize("beams", [False, True])
@pytest.mark.parametrize("values", [{"best_of": 0}, {"best_of": 17}, {"best_of": 10**6}, {"best_of": 1, "n": 2}])
async def test_best_of_out_of_range(http, engine, beams, values):
    assert_error(await http.complete(use_beam_search=beams, **values), 400, param="best_of")
    assert_error(await http.complete(best_of="2"), 400, param="best_of")
    assert not engine.calls


async def test_best_of_cannot_be_streamed(http, engine):
    assert_error(await http.complete(best_of=2, stream=True), 400, param="best_of")
    assert not engine.calls


async def test_beam_search(http, engine):
    options = {"length_penalty": 0.5, "early_stopping": "never"}
    assert (await http.complete(use_beam_search=True, n=2, best_of=4, **options)).status_code == 200
    assert (await http.complete(use_beam_search=True, n=2, stream=True)).status_code == 200
    assert (await http.chat(use_beam_search=True, n=3, early_stopping=True)).status_code == 200
    assert [call["params"] for call in engine.calls] == [
        SamplingParams(n=2, beam=BeamSearch(width=4, **options), max_tokens=16),
        SamplingParams(n=2, beam=BeamSearch(width=2), max_tokens=16),
        SamplingParams(n=3, beam=BeamSearch(width=3, early_stopping=True)),
    ]


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ({"length_penalty": 11}, "length_penalty"),
        ({"length_penalty": "1"}, "length_penalty"),
        ({"early_stopping": "sometimes"}, "early_stopping"),
        ({"early_stopping": 1}, "early_stopping"),
        ({"stop": "x"}, "stop"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
async def test_what_does_not_go_together_with_beam_search(http, engine, values, param):
    for ask in (http.complete, http.chat):
        assert "beam." not in assert_error(await ask(use_beam_search=True, **values), 400, param=param)
    assert not engine.calls


async def test_what_the_engine_says_of_beam_search_is_in_the_words_of_the_client(http, engine):
    for number, (param, name) in enumerate(
        [("beam", "use_beam_search"), ("beam.width", "best_of"), ("beam.length_penalty", "length_penalty")]
    ):
        engine.refuse[number] = InvalidRequestError(f"{param} is wrong", param=param)
        message = assert_error(await http.complete(use_beam_search=True, best_of=2), 400, param=name)
        assert message == f"{name} is wrong"
    engine.refuse[3] = InvalidRequestError("beam.width is wrong", param="beam.width")
    assert_error(await http.chat(use_beam_search=True, n=2), 400, param="n")


@pytest.mark.parametrize(("name", "value"), [("length_penalty", 0.5), ("early_stopping", True)])
async def test_options_of_beam_search_need_it(http, engine, name, value):
    for ask in (http.complete, http.chat):
        assert_error(await ask(**{name: value}), 400, param=name)
        assert (await ask(length_penalty=1.0, early_stopping=False)).status_code == 200
    assert len(engine.calls) == 2
