"""Random outputs: what a model that knows nothing would write."""

import random

from corelm_llguidance.compiler import LLGuidance

from corelm.api import StructuredOutput
from corelm.testing import FakeTokenizer, allowed_tokens
from corelm.testing.tokenizer import EOS


def compiler():
    return LLGuidance(FakeTokenizer(), FakeTokenizer.vocab_size)


def compiled(kind, source):
    compiler_ = compiler()
    return compiler_, compiler_.compile(StructuredOutput(kind=kind, source=source))


def walk(compiler_, grammar, *, seed=0, likes=b"", most=2000, forced=True):
    """The text, and whether it ended by itself. What it `likes` is taken wherever it may be."""
    draw, matcher, tokens = random.Random(seed), grammar.matcher(), []
    while not matcher.ended:
        if forced and tokens:
            ahead = matcher.forced()
            matcher.accept(ahead)
            tokens += ahead
            if matcher.ended:
                break
        (mask,) = compiler_.masks([matcher])
        allowed = allowed_tokens(mask)
        token = draw.choice([token for token in allowed if token < 256 and token in likes] or allowed)
        if token == EOS:
            break
        matcher.accept([token])
        tokens.append(token)
        if len(tokens) > most:
            return bytes(tokens), False
    return bytes(tokens), True
