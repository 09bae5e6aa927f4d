"""Reading an output that is not complete yet."""

import re
from collections.abc import Generator, Iterator, Sequence
from typing import TypeVar

from corelm_openai.formats import Piece

T = TypeVar("T")
Wait = Generator[None, None, T]
"""Yields when it needs more text. Runs on when there is more, and returns what it was called for."""
Texts = Generator[str | None, None, T]
"""Also yields text that is not part of anything else."""
Steps = Generator[Piece | None, None, T]
"""Also yields calls."""

SPACE = re.compile(r"\s+")


class Reader:
    """The text of an output as far as it is known.

    What was passed since the last `accept` is the candidate: it turns out to be a call, or is rejected and is text.
    """

    def __init__(self) -> None:
        self._text = ""
        self._start = 0
        """Where the candidate starts."""
        self._at = 0
        self._complete = False

    def feed(self, text: str, *, last: bool) -> None:
        """Add the next piece."""
        self._text = self._text[self._start :] + text
        self._at -= self._start
        self._start = 0
        self._complete = last

    def accept(self) -> str:
        """The candidate's text. The next candidate starts here."""
        text = self.passed()
        self._start = self._at
        return text

    def reject(self) -> Texts[None]:
        """Yield the candidate as text."""
        if text := self.accept():
            yield text

    def drop(self, count: int) -> None:
        """Forget the candidate's first characters."""
        self._start += count

    def passed(self) -> str:
        """The candidate's text so far."""
        return self._text[self._start : self._at]

    def skip(self) -> None:
        """Pass the character that `peek` returned."""
        self._at = min(self._at + 1, len(self._text))

    def back(self, count: int) -> None:
        """Return to before the last `count` characters of the candidate."""
        self._at -= count

    def peek(self) -> Wait[str]:
        """The next character; empty at the end of the output."""
        while self._at == len(self._text) and not self._complete:
            yield None
        return self._text[self._at : self._at + 1]

    def run(self, pattern: re.Pattern[str]) -> Wait[str]:
        """Pass everything that matches `pattern`, which is one that may go on for ever; empty if nothing does."""
        parts: list[str] = []
        while (yield from self.peek()) and (found := pattern.match(self._text, self._at)):
            parts.append(found[0])
            self._at = found.end()
        return "".join(parts)

    def space(self) -> Wait[None]:
        """Pass white space."""
        yield from self.run(SPACE)

    def literal(self, text: str, *, cut: bool = False) -> Wait[bool]:
        """Pass `text`, if it comes next. With `cut` the end of the output may cut it off."""
        while len(self._text) - self._at < len(text) and not self._complete:
            if not text.startswith(self._text[self._at :]):
                return False
            yield None
        found = self._text[self._at : self._at + len(text)]
        if found != text and not (cut and found and text.startswith(found)):
            return False
        self._at += len(found)
        return True

    def content(self, markers: Sequence[str]) -> Texts[str | None]:
        """Yield text until one of the `markers` and pass that; it begins a candidate, together with white space before.

        Returns the marker, or None at the end of the output.
        """
        pattern = re.compile("|".join(map(re.escape, markers)))
        while not (found := pattern.search(self._text, self._at)):
            end = len(self._text)
            if not self._complete:
                end = self._before_space(end - half_marker(self._text, self._at, markers))
            if text := self._take(end):
                yield text
            if self._complete:
                return None
            yield None
        if text := self._take(self._before_space(found.start())):
            yield text
        self._at = found.end()
        return found[0]

    def everything(self) -> Texts[None]:
        """Yield all text to the end of the output."""
        while True:
            if text := self._take(len(self._text)):
                yield text
            if self._complete:
                return
            yield None

    def _take(self, end: int) -> str:
        self._at = end
        return self.accept()

    def _before_space(self, end: int) -> int:
        return self._at + len(self._text[self._at : end].rstrip())


def half_marker(text: str, start: int, markers: Sequence[str]) -> int:
    """How many characters at the end of `text`, not before `start`, may be the beginning of a marker."""
    longest = 0
    for marker in markers:
        sizes = range(min(len(marker) - 1, len(text) - start), longest, -1)
        longest = next((size for size in sizes if text.endswith(marker[:size])), longest)
    return longest


def advance(steps: Iterator[T | None]) -> list[T]:
    """What `steps` yields until it needs more text."""
    found = []
    for step in steps:
        if step is None:
            break
        found.append(step)
    return found


class StepParser:
    """A `corelm_openai.formats.ToolParser` that follows `steps`."""

    def __init__(self, reader: Reader, steps: Iterator[Piece | None]) -> None:
        self._reader = reader
        self._steps = steps

    def push(self, text: str, *, last: bool = False) -> Sequence[Piece]:
        """What `text` adds."""
        self._reader.feed(text, last=last)
        return advance(self._steps)
