"""Logits processors in the core: selected, checked, and handed on. What they do to logits, executors' tests say."""

import asyncio

import pytest
from distributions import install
from helpers import greedy, make_engine, make_intake

from corelm.api import (
    BeamSearch,
    ConfigurationError,
    InvalidRequestError,
    LogitsProcessor,
    PluginError,
    SamplingParams,
)
from corelm.assembly import create_engine
from corelm.engine.intake import Intake
from corelm.engine.prompts import PromptReader
from corelm.testing import FakeExecutor, FakeTokenizer

CAPABLE = frozenset({"prefix_cache", "copy_blocks", "logprobs", "logits_processors"})


class Positive(LogitsProcessor):
    """Takes positive numbers."""

    def check(self, argument):
        if not argument > 0:
            raise InvalidRequestError("must be positive", code="too_small")

    def apply(self, logits, rows):
        raise AssertionError("nobody computes here")


def intake_with(processors):
    tokenizer = FakeTokenizer()
    prompts = PromptReader(tokenizer, max_model_len=100, kv_tokens=100, vocab_size=258)
    return Intake(tokenizer, prompts, capabilities=CAPABLE, logits_processors=processors)


def prepare(processors, **params):
    return intake_with(processors).prepare("hello", greedy(**params), request_id="r", arrival=0.0)


@pytest.mark.parametrize("value", [None, ["a"], {str(number): 1 for number in range(17)}])
def test_parameters_that_are_no_small_mapping(value):
    with pytest.raises(InvalidRequestError, match="at most 16 names") as caught:
        SamplingParams(logits_processors=value)
    assert caught.value.param == "logits_processors"


def test_beam_search_has_none():
    with pytest.raises(InvalidRequestError, match="does not go together with beam search") as caught:
        SamplingParams(beam=BeamSearch(width=2), logits_processors={"a": 1})
    assert caught.value.param == "logits_processors"
    SamplingParams(beam=BeamSearch(width=2), logits_processors={})


def test_the_executor_and_every_choice_get_the_argument():
    started = []
    executor = FakeExecutor(capabilities=CAPABLE, on_step=lambda plan: started.extend(plan.started))
    engine = make_engine(executor)
    engine.intake = intake_with({"positive": Positive()})
    params = greedy(logits_processors={"positive": 2}, n=3)
    engine.add(engine.intake.prepare("hello", params, request_id="r", arrival=0.0))
    while engine.has_work:
        engine.step()
    assert [start.sampling.logits_processors for start in started] == [{"positive": 2}] * 3


@pytest.mark.parametrize(
    ("processors", "selected"), [({}, "none"), ({"a": Positive(), "b": Positive()}, "a, b")], ids=["none", "two"]
)
def test_an_unknown_name_is_refused_with_what_there_is(processors, selected):
    message = f"no logits processor named 'c' is selected; selected: {selected}"
    with pytest.raises(InvalidRequestError, match=message) as caught:
        prepare(processors, logits_processors={"c": 1})
    assert caught.value.param == "logits_processors"


def test_an_endless_name_does_not_come_back():
    with pytest.raises(InvalidRequestError) as caught:
        prepare({}, logits_processors={"x" * 10_000: 1})
    assert len(str(caught.value)) < 200


def test_a_bad_argument_is_refused_by_the_name_of_its_processor():
    with pytest.raises(InvalidRequestError, match=r"^logits_processors\.positive: must be positive$") as caught:
        prepare({"positive": Positive()}, logits_processors={"positive": -1})
    assert (caught.value.param, caught.value.code) == ("logits_processors.positive", "too_small")


def test_without_the_capability_they_are_refused():
    intake = make_intake(capabilities=frozenset())
    with pytest.raises(InvalidRequestError, match="lacks the capability 'logits_processors'"):
        intake.prepare("a", greedy(logits_processors={"a": 1}), request_id="r", arrival=0.0)


PLUGIN = """
from pydantic import BaseModel
from corelm.api import LogitsProcessor, hookimpl

class Shift(LogitsProcessor):
    def __init__(self, context):
        self.context = context
        if context.settings.by == 13:
            raise KeyError("unlucky")
    def check(self, argument): ...
    def apply(self, logits, rows): ...

class Settings(BaseModel):
    by: int = 1

@hookimpl
def corelm_register_logits_processors(register):
    register("shift", Shift, settings=Settings)
    register("other", lambda context: Shift(context), settings=None)
"""


@pytest.fixture
def contexts(tmp_path, monkeypatch):
    """What executors that were created were given. They are capable."""
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, "shift", PLUGIN, module="plugin_logits_shift")
    contexts = []

    def make(settings, context):
        contexts.append(context)
        return FakeExecutor(capabilities=CAPABLE)

    monkeypatch.setattr("corelm_fake._Scripted", make)
    return contexts


def start(**settings):
    engine = create_engine("fake", executor="fake", tokenizer="fake", **settings)
    asyncio.run(_start_and_stop(engine))


async def _start_and_stop(engine):
    await engine.start()
    await engine.stop()


def test_those_selected_are_created_once_and_reach_the_executor(contexts):
    start(logits_processors=["shift", "shift"], shift={"by": 5})
    [context] = contexts
    [(name, processor)] = context.logits_processors.items()
    assert name == "shift"
    assert processor.context.settings.by == 5
    assert isinstance(processor.context.tokenizer, FakeTokenizer)


def test_installing_one_does_not_select_it(contexts):
    start()
    assert contexts[0].logits_processors == {}


@pytest.mark.usefixtures("contexts")
def test_a_name_that_nobody_registered_ends_the_start():
    with pytest.raises(PluginError, match="no logits_processor named 'shifts'; did you mean 'shift'"):
        start(logits_processors=["shifts"])


def test_one_that_cannot_be_created_ends_the_start_and_is_named(contexts):
    with pytest.raises(PluginError, match=r"logits_processor 'shift' of plugin 'shift' .* could not be created"):
        start(logits_processors=["shift"], shift={"by": 13})
    assert not contexts


def test_an_executor_that_cannot_apply_them_ends_the_start_and_is_shut_down(contexts, monkeypatch):
    executor = FakeExecutor()
    monkeypatch.setattr("corelm_fake._Scripted", lambda settings, context: executor)
    with pytest.raises(ConfigurationError, match=r"executor 'fake' of plugin 'fake' .* cannot apply .* without shift$"):
        start(logits_processors=["shift"])
    assert executor.shut_down
