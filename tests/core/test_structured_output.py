"""Structured outputs in the engine: what executors are asked, how choices end, and who fails."""

import json

import pytest
from helpers import expected_text, greedy, make_engine, make_grammars, make_intake

from corelm.api import BeamSearch, InvalidRequestError, RequestFailedError, SamplingParams, StructuredOutput
from corelm.testing import FakeExecutor, FakeGrammarCompiler, allowed_tokens

PHRASES = ["one two three", "one two four", "five"]
EOS = 257


def choice(*texts):
    return StructuredOutput(kind="choice", source=json.dumps(texts))


def add(engine, prompt="hello", request_id="r", **params):
    params = {"temperature": 0.0, "structured_output": choice(*PHRASES), **params}
    wanted = params["structured_output"]
    grammar = None if wanted is None else engine.intake.grammars().compile(wanted)
    request = engine.intake.prepare(
        prompt, SamplingParams(**params), request_id=request_id, arrival=0.0, grammar=grammar
    )
    engine.add(request)
    return request.number


def finish(engine):
    """The outputs or errors of every request, by number."""
    told = {}
    while engine.has_work:
        for number, output in engine.step():
            told.setdefault(number, []).append(output)
        engine.check_integrity()
    return told


def run(engine, **params):
    """The outputs of a request that is alone."""
    number = add(engine, **params)
    return finish(engine)[number]


def text_of(outputs):
    return "".join(output.text for output in outputs)


@pytest.fixture
def plans():
    return []


@pytest.fixture
def engine(plans):
    return make_engine(FakeExecutor(on_step=plans.append))


def test_an_output_is_one_of_the_choices_and_stops_by_itself(engine):
    outputs = run(engine)
    assert text_of(outputs) in PHRASES
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == ("stop", None)
    assert sum(len(output.token_ids) for output in outputs) == outputs[-1].completion_tokens == len(text_of(outputs))


def test_what_is_forced_is_computed_in_one_slice_and_not_sampled(engine, plans):
    outputs = run(engine, structured_output=choice("same beginning: a", "same beginning: b"))
    beginning, end = [plan.slices[0] for plan in plans]
    assert allowed_tokens(beginning.allowed) == [ord("s")]
    assert bytes(end.forced) == b"ame beginning: "
    assert (end.start, end.num_tokens, end.sample) == (5, 16, True)
    assert allowed_tokens(end.allowed) == [ord("a"), ord("b")]
    assert [len(output.token_ids) for output in outputs] == [16, 1]
    assert engine.snapshot().generation_tokens == 17


def test_nothing_but_the_end_needs_no_step(engine, plans):
    outputs = run(engine, structured_output=choice("a sentence"))
    assert len(plans) == 1
    assert text_of(outputs) == "a sentence"


def test_an_output_that_may_end_or_go_on_samples_its_end(engine):
    outputs = run(engine, structured_output=choice("1", "12"))
    assert text_of(outputs) in ("1", "12")
    assert outputs[-1].finish_reason == "stop"
    assert outputs[-1].stop_reason == (EOS if text_of(outputs) == "1" else None)


def test_an_empty_output(engine):
    outputs = run(engine, structured_output=choice(""))
    assert (text_of(outputs), outputs[-1].finish_reason, outputs[-1].stop_reason) == ("", "stop", EOS)


@pytest.mark.parametrize("most", range(1, 6))
def test_tokens_end_where_max_tokens_says(engine, most):
    outputs = run(engine, structured_output=choice("abcd"), max_tokens=most)
    assert text_of(outputs) == "abcd"[:most]
    assert outputs[-1].finish_reason == ("stop" if most >= 4 else "length")


def test_only_reading_the_prompt(engine):
    outputs = run(engine, max_tokens=0)
    assert (text_of(outputs), outputs[-1].finish_reason) == ("", "length")


@pytest.mark.parametrize(
    "params", [{"logprobs": 2}, {"bad_words": ("q",)}, {"allowed_token_ids": tuple(b"onetwhrfuiv ")}], ids=str
)
def test_who_wants_to_see_or_edit_each_token_gets_none_that_is_forced(plans, params):
    capabilities = FakeExecutor().info.capabilities | {"token_masks"}
    engine = make_engine(FakeExecutor(on_step=plans.append, capabilities=capabilities))
    outputs = run(engine, **params)
    assert text_of(outputs) in PHRASES
    assert not any(item.forced for plan in plans for item in plan.slices)
    if "logprobs" in params:
        assert all(len(output.logprobs) == len(output.token_ids) for output in outputs)


def test_a_stop_string_within_what_is_forced(engine):
    outputs = run(engine, structured_output=choice("a comma, and more"), stop=(",",))
    assert text_of(outputs) == "a comma"
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == ("stop", ",")
    assert outputs[-1].completion_tokens == len("a comma,")


def test_a_held_back_beginning_of_a_stop_string_is_shown_at_the_end(engine):
    outputs = run(engine, structured_output=choice("it is so", "so it is"), stop=("so far",))
    assert text_of(outputs) in ("it is so", "so it is")


def test_every_choice_has_a_state_of_its_own(engine):
    outputs = run(engine, n=8, temperature=1.0, seed=1)
    texts = [text_of(output for output in outputs if output.index == index) for index in range(8)]
    assert set(texts) <= set(PHRASES)
    assert len(set(texts)) > 1


def test_best_of(engine):
    outputs = run(engine, n=2, best_of=4, temperature=1.0, seed=1)
    for index in range(2):
        assert text_of(output for output in outputs if output.index == index) in PHRASES


@pytest.mark.parametrize("depth", [1, 2])
def test_neighbours_get_what_they_get_alone(plans, depth):
    engine = make_engine(FakeExecutor(on_step=plans.append, pipeline_depth=depth))
    plain = [add(engine, f"prompt {i}", str(i), structured_output=None, ignore_eos=True, max_tokens=20) for i in "abc"]
    bound = [add(engine, f"prompt {i}", str(i), structured_output=choice(*PHRASES)) for i in "def"]
    told = finish(engine)
    assert [text_of(told[number]) for number in plain] == [expected_text(f"prompt {i}", 20) for i in "abc"]
    assert all(text_of(told[number]) in PHRASES for number in bound)
    assert all((item.allowed is not None) == (item.seq_id in bound) for plan in plans for item in plan.slices)


def test_pipelined_rows_with_a_grammar_wait_and_others_do_not(plans):
    engine = make_engine(FakeExecutor(on_step=plans.append, pipeline_depth=2))
    plain = add(engine, "plain", "plain", structured_output=None, ignore_eos=True, max_tokens=16)
    bound = add(engine, "bound", "bound", structured_output=choice("ab", "bc", "cd", "de"), logprobs=0)
    finish(engine)
    steps = {number: [p.step_id for p in plans if number in [s.seq_id for s in p.slices]] for number in (plain, bound)}
    assert steps[bound] == [1, 3]
    assert steps[plain] == list(range(1, 17))


@pytest.mark.parametrize("swap", [0, 40])
def test_preempted_outputs_go_on_where_they_were(swap):
    texts = [f"{letter} long text that is cut into several blocks {end}" for letter in "xyz" for end in "123"]
    expected = {}
    for small in (False, True):
        executor = FakeExecutor(num_blocks=18 if small else 200, num_swap_blocks=swap)
        engine = make_engine(executor, max_num_batched_tokens=16)
        numbers = [add(engine, f"prompt {i}", str(i), structured_output=choice(*texts)) for i in range(4)]
        told = finish(engine)
        if small:
            assert engine.snapshot().preemptions
            assert [text_of(told[number]) for number in numbers] == expected
        else:
            expected = [text_of(told[number]) for number in numbers]
            assert set(expected) <= set(texts)


def test_forced_tokens_come_before_chunks_of_prompts(plans):
    engine = make_engine(FakeExecutor(on_step=plans.append), max_num_batched_tokens=8)
    bound = add(engine, "ab", "short", structured_output=choice("forced for long: a", "forced for long: b"))
    engine.step()
    reading = add(engine, "a prompt that is read in many chunks of eight tokens", "long", structured_output=None)
    finish(engine)
    slices = [{item.seq_id: item for item in plan.slices} for plan in plans]
    first = next(number for number, each in enumerate(slices) if bound in each and each[bound].forced)
    assert [each[bound].num_tokens for each in slices[first : first + 3]] == [8, 8, 1]
    assert [each[reading].num_tokens for each in slices[first : first + 3] if reading in each] == [7]


def test_aborting(engine):
    number = add(engine)
    engine.step()
    engine.abort([number])
    engine.check_integrity()
    assert not engine.has_work


class Failing(FakeGrammarCompiler):
    """The matchers of a text that begins with "bad" fail at their third token."""

    def __init__(self, error, place):
        super().__init__()
        self.error, self.place = error, place
        self.calls = []

    def compile(self, wanted):
        grammar = super().compile(wanted)
        if "bad" in wanted.source:
            make = grammar.matcher
            grammar.matcher = lambda: self._bad(make())
        return grammar

    def _bad(self, matcher):
        accept = matcher.accept

        def count(tokens):
            accept(tokens)
            matcher.failed = len(matcher._rests) < 2
            if self.place == "accept" and matcher.failed:
                raise self.error

        matcher.accept = count
        return matcher

    def masks(self, matchers):
        self.calls.append(len(matchers))
        if self.place == "masks" and any(getattr(matcher, "failed", False) for matcher in matchers):
            raise self.error
        return super().masks(matchers)


@pytest.mark.parametrize("place", ["accept", "masks"])
@pytest.mark.parametrize(
    ("error", "message"),
    [(RequestFailedError("too complex"), "too complex"), (KeyError("row"), "(could not be made|grammar failed).*row")],
    ids=["on purpose", "by mistake"],
)
def test_a_grammar_that_fails_fails_its_request_alone(place, error, message):
    compiler = Failing(error, place)
    engine = make_engine(FakeExecutor(), grammars=make_grammars(compiler))
    good = [add(engine, f"good {i}", str(i), logprobs=0) for i in range(3)]
    bad = add(engine, "bad", "bad", structured_output=choice("bad or", "bad and"), logprobs=0)
    told = finish(engine)
    on_purpose = isinstance(error, RequestFailedError)
    with pytest.raises(InvalidRequestError if on_purpose else RequestFailedError, match=message) as failure:
        raise told[bad][-1]
    assert not on_purpose or failure.value.param == "structured_output"
    assert all(text_of(told[number]) in PHRASES for number in good)


def test_masks_are_made_for_all_rows_at_once():
    compiler = Failing(None, "nowhere")
    engine = make_engine(FakeExecutor(), grammars=make_grammars(compiler))
    for number in range(5):
        add(engine, f"prompt {number}", str(number), structured_output=choice("ab", "ac"), logprobs=0)
    del compiler.calls[:]
    engine.step()
    assert compiler.calls == [5]


def test_an_executor_that_finds_nothing_to_sample_fails_the_request_alone():
    compiler = FakeGrammarCompiler()
    engine = make_engine(FakeExecutor(), grammars=make_grammars(compiler))
    lost, other = add(engine, "a", "a"), add(engine, "b", "b", structured_output=choice("five"))
    compiler.masks = lambda matchers: [bytes(36)] * len(matchers)
    told = finish(engine)
    assert isinstance(told[lost][-1], RequestFailedError)
    assert text_of(told[other]) == "five"


@pytest.mark.parametrize(("name", "value"), [("min_tokens", 1), ("ignore_eos", True)])
def test_what_does_not_go_together(name, value):
    with pytest.raises(InvalidRequestError, match=f"{name} does not go together with structured_output") as caught:
        SamplingParams(structured_output=choice("a"), **{name: value})
    assert caught.value.param == name


def test_beam_search_has_none():
    with pytest.raises(InvalidRequestError, match="structured_output does not go together with beam search"):
        SamplingParams(structured_output=choice("a"), beam=BeamSearch(width=2))


def test_without_a_compiler_it_is_refused():
    with pytest.raises(InvalidRequestError, match=r"needs a grammar compiler.*corelm-llguidance") as caught:
        make_intake().grammars()
    assert caught.value.param == "structured_output"


def test_without_the_capability_it_is_refused():
    intake = make_intake(capabilities=frozenset(), grammars=make_grammars())
    for ask in (
        intake.grammars,
        lambda: intake.prepare("a", greedy(structured_output=choice("a")), request_id="r", arrival=0.0),
    ):
        with pytest.raises(InvalidRequestError, match="lacks the capability 'grammar'") as caught:
            ask()
        assert caught.value.param == "structured_output"
