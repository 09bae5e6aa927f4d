"""One line of log now and then about what the engine gets done."""

import math
from collections.abc import Callable
from typing import NamedTuple

from corelm.outputs import EngineStats


class StatsLog:
    """Logs a line each `interval_s` seconds while there is work, and one when it has ended; 0 turns it off.

    Lines never come faster than that: if work ends soon after a line, the last one waits for its time, and is not
    written if there is work again before.
    """

    def __init__(self, interval_s: float, log: Callable[[str], None]) -> None:
        self._interval_s = interval_s
        self._log = log
        self._begun: float | None = None
        """From when on the next line counts; None if there is nothing to tell."""
        self._end: tuple[EngineStats, float] | None = None
        """How things stood when work ended, and when, while the last line waits."""
        self._logged = -math.inf
        self._counted = _Counts(0, 0, 0, 0)

    def update(self, stats: EngineStats, now: float) -> None:
        """Take in how things stand at `now`, in seconds. Call it before and after each turn."""
        if not self._interval_s:
            return
        busy = stats.running + stats.waiting > 0
        if self._begun is None:
            self._wait_for_work(stats, now, busy)
            return
        if self._end is None and not busy:
            self._end = (stats, now)
        if self._end is None:
            if now >= self._begun + self._interval_s:
                self._write(stats, self._begun, now)
                self._begun = self._logged = now
        elif now >= self._logged + self._interval_s:
            final, ended = self._end
            self._write(final, self._begun, ended)
            self._begun, self._end, self._logged = None, None, now
            self._wait_for_work(stats, now, busy)
        elif busy:
            self._end = None

    def _wait_for_work(self, stats: EngineStats, now: float, busy: bool) -> None:
        if busy:
            self._begun = now
        else:
            self._counted = _counts(stats)

    def _write(self, stats: EngineStats, begun: float, ended: float) -> None:
        if ended > begun:
            counts = _counts(stats)
            done = _Counts(*(after - before for after, before in zip(counts, self._counted, strict=True)))
            self._log(_line(stats, done, ended - begun))
            self._counted = counts


class _Counts(NamedTuple):
    prompt_tokens: int
    cached_tokens: int
    generation_tokens: int
    preemptions: int


def _counts(stats: EngineStats) -> _Counts:
    return _Counts(stats.prompt_tokens, stats.cached_tokens, stats.generation_tokens, stats.preemptions)


def _line(stats: EngineStats, done: _Counts, seconds: float) -> str:
    parts = [
        f"running {stats.running}",
        f"waiting {stats.waiting}",
        f"prompt {done.prompt_tokens / seconds:.1f} tokens/s",
        f"generation {done.generation_tokens / seconds:.1f} tokens/s",
        f"KV cache {1 - stats.free_blocks / stats.total_blocks:.0%} used",
    ]
    if done.cached_tokens and done.prompt_tokens:
        parts.append(f"prefix cache hits {done.cached_tokens / done.prompt_tokens:.0%}")
    if done.preemptions:
        parts.append(f"preemptions {done.preemptions}")
    return ", ".join(parts)
