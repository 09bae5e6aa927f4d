"""The grammar suite passes a good compiler, and says what is wrong with each bad one."""

import re

import pytest

from corelm.api import InvalidRequestError
from corelm.testing import FakeGrammarCompiler, GrammarConformance, mask_of
from corelm.testing.conformance.running import run_suite
from corelm.testing.tokenizer import EOS


class TestFakeGrammarCompiler(GrammarConformance):
    def make_compiler(self, context):
        return FakeGrammarCompiler(context.tokenizer, context.vocab_size)


class Short(FakeGrammarCompiler):
    def masks(self, matchers):
        return [mask[: -(-self.vocab_size // 8)] for mask in super().masks(matchers)]


class Padded(FakeGrammarCompiler):
    """Lets the tokens be sampled that only the executor has."""

    def masks(self, matchers):
        return [mask_of({*m.next_tokens(), self.vocab_size - 1}, self.vocab_size) for m in matchers]


class EndsAnywhere(FakeGrammarCompiler):
    def masks(self, matchers):
        return [mask_of({*m.next_tokens(), EOS}, self.vocab_size) for m in matchers]


class ForgetsTheEnd(FakeGrammarCompiler):
    def __init__(self, tokenizer, vocab_size):
        super().__init__(tokenizer, vocab_size)
        self.end_tokens = frozenset()


class _ChangesMatchers(FakeGrammarCompiler):
    def compile(self, wanted):
        grammar = super().compile(wanted)
        make = grammar.matcher
        grammar.matcher = lambda: self.changed(make())
        return grammar


class ForcesTooMuch(_ChangesMatchers):
    def changed(self, matcher):
        matcher.forced = lambda: matcher.next_tokens()[:2]
        return matcher


class SharesItsMatcher(FakeGrammarCompiler):
    def compile(self, wanted):
        grammar = super().compile(wanted)
        matcher = grammar.matcher()
        grammar.matcher = lambda: matcher
        return grammar


class SortsRows(FakeGrammarCompiler):
    def masks(self, matchers):
        return sorted(super().masks(matchers))


class Raises(FakeGrammarCompiler):
    def compile(self, wanted):
        try:
            return super().compile(wanted)
        except InvalidRequestError as error:
            raise ValueError(str(error)) from error


class TakesAnything(FakeGrammarCompiler):
    def compile(self, wanted):
        try:
            return super().compile(wanted)
        except InvalidRequestError:
            return None


class KeepsTheLast(FakeGrammarCompiler):
    """Not for two threads."""

    def compile(self, wanted):
        self.wanted = wanted
        self.stop = len(self.wanted.source)
        return super().compile(self.wanted)


BROKEN = [
    (Short, "masks have a bit for each token", "must be 36 bytes, not 33"),
    (Padded, "masks have a bit for each token", "which the tokenizer does not have"),
    (EndsAnywhere, "a choice gives its texts and no others", "after a whole text only"),
    (ForgetsTheEnd, "every allowed token leads on", "leads to where nothing is allowed"),
    (ForcesTooMuch, "forced tokens fit", "forced() gave token"),
    (SharesItsMatcher, "matchers go their own ways", "must not move another"),
    (SortsRows, "masks of many are those of each", "row i the mask of matchers[i]"),
    (TakesAnything, "bad sources are refused each time", "must be refused with InvalidRequestError"),
    (KeepsTheLast, "compiling in threads", "in two threads at once"),
]


@pytest.mark.parametrize(("compiler", "check", "words"), BROKEN)
def test_a_fault_is_found_and_explained(compiler, check, words):
    class Suite(GrammarConformance):
        def make_compiler(self, context):
            return compiler(context.tokenizer, context.vocab_size)

    with pytest.raises(AssertionError, match=re.escape(words)):
        getattr(Suite(), f"test_{check.replace(' ', '_')}")()


def test_an_error_of_another_kind():
    class Suite(GrammarConformance):
        def make_compiler(self, context):
            return Raises(context.tokenizer, context.vocab_size)

    results = {result.name: result for result in run_suite(Suite())}
    assert "raised ValueError" in results["bad sources are refused each time"].message


def test_running_without_pytest():
    assert all(result.passed for result in run_suite(TestFakeGrammarCompiler()))


def test_what_an_author_forgets_to_write():
    message = run_suite(GrammarConformance())[0].message
    assert "define make_compiler(self, context)" in message
