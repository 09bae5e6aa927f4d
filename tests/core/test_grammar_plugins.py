"""Grammar compilers as plugins (corelm_register_grammars): which one is selected, and what it is given."""

import threading

import pytest
from distributions import install

from corelm.api import BatchError, InvalidRequestError, PluginError, QueueFullError, SamplingParams, StructuredOutput
from corelm.assembly import create_engine
from corelm.cli import main
from corelm.llm import LLM
from corelm.plugins import PluginHost
from corelm.testing import FakeExecutor, FakeGrammarCompiler, FakeTokenizer

PLUGIN = """
from pydantic import BaseModel
from corelm.api import hookimpl
from corelm.testing import FakeGrammarCompiler

class Settings(BaseModel):
    by: int = 1

MADE = []

def make(context):
    MADE.append(context)
    return FakeGrammarCompiler(context.tokenizer, context.vocab_size)

@hookimpl
def corelm_register_grammars(register):
    register({name!r}, make, settings=Settings, unavailable=lambda: {obstacle!r})
"""
WANTED = SamplingParams(structured_output=StructuredOutput(kind="choice", source='["yes", "no"]'), temperature=0.0)


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(name, obstacle=None):
        install(tmp_path, name, PLUGIN.format(name=name, obstacle=obstacle), module=f"plugin_grammar_{name}")
        return name

    return put


def host(*names):
    return PluginHost.load(["fake", *names])


def llm(*names, **settings):
    return LLM("fake", executor="fake", tokenizer="fake", plugins=["fake", "fcfs", *names], progress=False, **settings)


def test_the_only_one_is_selected(site):
    assert host(site("one_g")).select("grammar", "auto").name == "one_g"


def test_llguidance_is_selected_before_others(site):
    names = [site("aaa_g"), site("llguidance")]
    found = PluginHost.load(["fake", "aaa_g"])
    found.registrations["grammar"]["llguidance"] = found.registrations["grammar"]["aaa_g"]
    assert len(names) == len(found.registrations["grammar"])
    assert found.select("grammar", "auto") is found.registrations["grammar"]["llguidance"]


def test_one_of_several_has_to_be_named(site):
    found = host(site("one_h"), site("two_h"))
    with pytest.raises(PluginError, match=r"no grammar could be chosen automatically; available: one_h, two_h"):
        found.select("grammar", "auto")
    assert found.select("grammar", "two_h").name == "two_h"


def test_without_any_there_is_nothing_to_select(site):
    assert not host().has_grammar("auto")
    assert not host(site("lame_g", "no library")).has_grammar("auto")
    assert host().has_grammar("llguidance")


def test_what_cannot_run_here_is_passed_over(site):
    assert host(site("lame_h", "no library"), site("good_h")).select("grammar", "auto").name == "good_h"


def test_a_library_user_gets_structured_outputs(site, monkeypatch):
    site("mine_g")
    with llm("mine_g", mine_g={"by": 3}) as running:
        (output,) = running.generate("yes or no?", WANTED)
        import plugin_grammar_mine_g

        [context] = plugin_grammar_mine_g.MADE
    assert output.text in ("yes", "no")
    assert context.settings.by == 3
    assert isinstance(context.tokenizer, FakeTokenizer)
    assert context.vocab_size == FakeExecutor().info.vocab_size


def test_without_a_compiler_the_request_is_refused():
    with llm() as running, pytest.raises(InvalidRequestError, match="needs a grammar compiler"):
        running.generate("yes or no?", WANTED)


def test_without_the_capability_no_compiler_is_made(site, monkeypatch):
    site("idle_g")
    monkeypatch.setattr(
        "corelm_fake._Scripted", lambda settings, context: FakeExecutor(capabilities=frozenset({"prefix_cache"}))
    )
    with llm("idle_g") as running, pytest.raises(InvalidRequestError, match="lacks the capability 'grammar'"):
        running.generate("yes or no?", WANTED)
    import plugin_grammar_idle_g

    assert not plugin_grammar_idle_g.MADE


def test_a_name_that_nobody_registered_ends_the_start(site):
    site("real_g")
    with pytest.raises(PluginError, match="no grammar named 'reel_g'; did you mean 'real_g'"):
        create_engine("fake", executor="fake", tokenizer="fake", grammar="reel_g")


def test_a_grammar_that_takes_too_long_is_refused(site, monkeypatch):
    def compile_slowly(self, wanted):
        raise_later.wait(5)
        raise InvalidRequestError("too late")

    raise_later = threading.Event()
    monkeypatch.setattr(FakeGrammarCompiler, "compile", compile_slowly)
    with llm(site("slow_g"), grammar_timeout_s=0.05) as running:
        with pytest.raises((InvalidRequestError, QueueFullError), match=r"longer than 0\.05 s|try again"):
            running.generate("a", WANTED)
        raise_later.set()


def test_the_settings_have_flags(capsys):
    assert main(["config", "--grammar-timeout-s", "3", "--grammar-cache", "5", "--json"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("grammar_timeout_s", "grammar_cache"))


def test_a_compiler_that_fails_fails_its_prompt_alone(site, monkeypatch):
    def compile_badly(self, wanted):
        raise KeyError("a mistake")

    monkeypatch.setattr(FakeGrammarCompiler, "compile", compile_badly)
    message = "prompt 1: the grammar could not be compiled"
    with llm(site("bad_g")) as running, pytest.raises(BatchError, match=message) as caught:
        running.generate(["plain", "bound"], [SamplingParams(max_tokens=3), WANTED])
    assert caught.value.results[0][0].completion_tokens == 3
