"""Finding stop strings in text that arrives in pieces."""

from collections.abc import Sequence


class StopMatcher:
    """Passes text on until a stop string appears; holds back only what may be the beginning of one."""

    def __init__(self, stop: Sequence[str], *, include: bool = False) -> None:
        """With `include` the stop string itself is passed on as well."""
        self._stop = stop
        self._include = include
        self._held = ""
        self.matched: str | None = None
        """The stop string that was found."""

    def push(self, text: str) -> str:
        """The text that is safe to show now. After a match nothing more is passed on."""
        if not self._stop:
            return text
        if self.matched is not None:
            return ""
        text = self._held + text
        hits = [(position, stop) for stop in self._stop if (position := text.find(stop)) >= 0]
        if hits:
            position, self.matched = min(hits, key=lambda hit: (hit[0], len(hit[1])))
            self._held = ""
            return text[: position + len(self.matched) * self._include]
        held = max(_overlap(text, stop) for stop in self._stop)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def flush(self) -> str:
        """What was held back, once no more text comes."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`, but not all of it."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
