"""The suite for grammar compilers."""

import json
import random
from collections.abc import Iterator
from functools import partial
from unittest import SkipTest

from corelm.contracts.grammar import Grammar, GrammarCompiler, GrammarContext, GrammarMatcher
from corelm.errors import InvalidRequestError
from corelm.sampling import StructuredOutput
from corelm.testing.conformance.threads import in_threads
from corelm.testing.grammar import allowed_tokens
from corelm.testing.tokenizer import EOS, FakeTokenizer

VOCABULARIES = (258, 300, 320)
"""Sizes of what an executor scores; the tokenizer has the first 258."""
TEXTS = ("yes", "no", "yes, and no", 'a "quoted" \\ one', "Zoë 漢\n")
LONGEST_WALK = 200
THREADS = 4


class GrammarConformance:
    """Checks a grammar compiler against its contract::

        class TestMine(GrammarConformance):
            def make_compiler(self, context):
                return MyCompiler(context)

    Needs no model: the tokenizer of the context has a token for each byte. `make_compiler` is called once or more in
    each check. A kind of source that your compiler refuses is left out.
    """

    sources: tuple[StructuredOutput, ...] = (
        StructuredOutput(kind="choice", source=json.dumps(TEXTS)),
        StructuredOutput(kind="choice", source='["", "a"]'),
        StructuredOutput(kind="json_schema", source='{"enum": ["a", {"b": [1, null]}]}'),
        StructuredOutput(kind="regex", source="[a-c]{2,20}x?"),
    )
    """Sources to walk through; add some in your compiler's own language."""
    bad_sources: tuple[StructuredOutput, ...] = (
        StructuredOutput(kind="json_schema", source="{"),
        StructuredOutput(kind="choice", source='["a", 1]'),
        StructuredOutput(kind="choice", source="[]"),
    )
    """Sources that have to be refused."""

    def make_compiler(self, context: GrammarContext) -> GrammarCompiler:
        """Your compiler for this context."""
        raise NotImplementedError("define make_compiler(self, context) in your suite: return YourCompiler(context)")

    def test_masks_have_a_bit_for_each_token(self) -> None:
        for size in VOCABULARIES:
            compiler = self._compiler(size)
            for wanted, grammar in self._grammars(compiler):
                (mask,) = compiler.masks([grammar.matcher()])
                wide = 4 * -(-size // 32)
                assert [type(mask), len(mask)] == [bytes, wide], (
                    f"a mask for {size} tokens must be {wide} bytes, not {len(mask)} in a {type(mask).__name__}"
                )
                allowed = allowed_tokens(mask)
                assert allowed, (
                    f"{wanted} allows nothing at its beginning: compile() must refuse what nothing can match"
                )
                beyond = [token for token in allowed if token >= FakeTokenizer.vocab_size]
                assert not beyond, f"the mask allows tokens {beyond}, which the tokenizer does not have"

    def test_a_choice_gives_its_texts_and_no_others(self) -> None:
        compiler = self._compiler()
        try:
            grammar = compiler.compile(StructuredOutput(kind="choice", source=json.dumps(TEXTS)))
        except InvalidRequestError:
            raise SkipTest("it refuses choices") from None
        found = sorted(_outputs(compiler, grammar, []))
        assert found == sorted(text.encode() for text in TEXTS), (
            f"the masks of a choice between {list(TEXTS)} lead to {found}: follow every token that they allow, and let "
            "the output end (the tokenizer's end tokens) after a whole text only"
        )

    def test_every_allowed_token_leads_on(self) -> None:
        compiler = self._compiler()
        for wanted, grammar in self._grammars(compiler):
            for seed in range(8):
                draw, matcher = random.Random(seed), grammar.matcher()
                for _ in range(LONGEST_WALK):
                    allowed = self._allowed(compiler, matcher)
                    assert allowed, f"a token that the mask of {wanted} allowed leads to where nothing is allowed"
                    assert not matcher.ended or allowed == [EOS], "once an output has ended, it may only end"
                    if (token := draw.choice(allowed)) == EOS:
                        break
                    matcher.accept([token])

    def test_forced_tokens_fit(self) -> None:
        compiler = self._compiler()
        for wanted, grammar in self._grammars(compiler):
            for seed in range(8):
                draw, matcher = random.Random(seed), grammar.matcher()
                for _ in range(LONGEST_WALK):
                    for token in matcher.forced():
                        allowed = self._allowed(compiler, matcher)
                        assert token in allowed, f"forced() gave token {token} where {wanted} allows {allowed}"
                        assert not matcher.ended, "nothing is forced once the output has ended"
                        matcher.accept([token])
                    if (token := draw.choice(self._allowed(compiler, matcher))) == EOS:
                        break
                    matcher.accept([token])

    def test_matchers_go_their_own_ways(self) -> None:
        compiler = self._compiler()
        for _, grammar in self._grammars(compiler):
            still, moving = grammar.matcher(), grammar.matcher()
            before = compiler.masks([still])
            for token in self._allowed(compiler, moving)[:1]:
                if token != EOS:
                    moving.accept([token])
            assert compiler.masks([still]) == before, "what one matcher accepts must not move another"
            assert compiler.masks([grammar.matcher()]) == before, "a fresh matcher stands at the beginning"

    def test_masks_of_many_are_those_of_each(self) -> None:
        compiler = self._compiler()
        matchers = []
        for _, grammar in self._grammars(compiler):
            for steps in range(6):
                matchers.append(matcher := grammar.matcher())
                for _ in range(steps):
                    if (token := self._allowed(compiler, matcher)[-1]) != EOS:
                        matcher.accept([token])
        apart = [mask for matcher in matchers for mask in compiler.masks([matcher])]
        assert compiler.masks(matchers) == apart, "masks(matchers) must give row i the mask of matchers[i]"
        assert compiler.masks(matchers) == apart, "asking for a mask must change nothing"

    def test_bad_sources_are_refused_each_time(self) -> None:
        compiler = self._compiler()
        for _ in range(2):
            for bad in self.bad_sources:
                message = self._refusal(compiler, bad)
                assert message is not None, f"{bad} must be refused with InvalidRequestError"
                assert message, f"the InvalidRequestError for {bad} has no message"
            list(self._grammars(compiler))

    def test_compiling_in_threads(self) -> None:
        compiler = self._compiler()
        wanted = [wanted for wanted, _ in self._grammars(self._compiler())]
        calls = [partial(self._first_mask, compiler, wanted[number % len(wanted)]) for number in range(THREADS)]
        expected = [self._first_mask(self._compiler(), wanted[number % len(wanted)]) for number in range(THREADS)]
        assert in_threads(calls) == expected, "compile() is called in two threads at once"

    def _compiler(self, vocab_size: int = VOCABULARIES[0]) -> GrammarCompiler:
        context = GrammarContext(settings=None, tokenizer=FakeTokenizer(), vocab_size=vocab_size)
        compiler = self.make_compiler(context)
        assert isinstance(compiler, GrammarCompiler), "derive your class from corelm.api.GrammarCompiler"
        return compiler

    def _grammars(self, compiler: GrammarCompiler) -> Iterator[tuple[StructuredOutput, Grammar]]:
        """Those of `sources` that the compiler takes; at least one."""
        taken = False
        for wanted in self.sources:
            try:
                grammar = compiler.compile(wanted)
            except InvalidRequestError:
                continue
            taken = True
            yield wanted, grammar
        assert taken, "it refuses every one of `sources`: give it some in its own language"

    def _refusal(self, compiler: GrammarCompiler, wanted: StructuredOutput) -> str | None:
        try:
            compiler.compile(wanted)
        except InvalidRequestError as error:
            return str(error)
        return None

    def _first_mask(self, compiler: GrammarCompiler, wanted: StructuredOutput) -> list[bytes]:
        return compiler.masks([compiler.compile(wanted).matcher()])

    def _allowed(self, compiler: GrammarCompiler, matcher: GrammarMatcher) -> list[int]:
        (mask,) = compiler.masks([matcher])
        return allowed_tokens(mask)


def _outputs(compiler: GrammarCompiler, grammar: Grammar, tokens: list[int]) -> Iterator[bytes]:
    """Every output that begins with `tokens`."""
    matcher = grammar.matcher()
    matcher.accept(tokens)
    (mask,) = compiler.masks([matcher])
    for token in allowed_tokens(mask):
        if token == EOS:
            yield bytes(tokens)
        elif len(tokens) < LONGEST_WALK:
            yield from _outputs(compiler, grammar, [*tokens, token])
