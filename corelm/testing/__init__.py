"""For tests of plugins and of corelm itself: deterministic stand-ins that need no model and no GPU."""

from corelm.testing.executor import FakeExecutor, fake_continuation, fake_distribution
from corelm.testing.tokenizer import FakeTokenizer

__all__ = ["FakeExecutor", "FakeTokenizer", "fake_continuation", "fake_distribution"]
