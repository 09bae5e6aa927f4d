"""For tests of plugins and of corelm itself: suites for each contract, and stand-ins that need no model and no GPU."""

from corelm.testing.conformance.executor import ExecutorConformance
from corelm.testing.conformance.frontend import FrontendConformance
from corelm.testing.conformance.grammar import GrammarConformance
from corelm.testing.conformance.policy import PolicyConformance
from corelm.testing.conformance.tokenizer import TokenizerConformance
from corelm.testing.executor import FakeExecutor, fake_continuation, fake_distribution, fake_embedding
from corelm.testing.grammar import FakeGrammarCompiler, allowed_tokens, mask_of
from corelm.testing.tokenizer import FakeTokenizer

__all__ = [
    "ExecutorConformance",
    "FakeExecutor",
    "FakeGrammarCompiler",
    "FakeTokenizer",
    "FrontendConformance",
    "GrammarConformance",
    "PolicyConformance",
    "TokenizerConformance",
    "allowed_tokens",
    "fake_continuation",
    "fake_distribution",
    "fake_embedding",
    "mask_of",
]
