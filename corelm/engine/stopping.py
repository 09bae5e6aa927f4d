"""Finding stop strings in text that arrives in pieces."""

from collections.abc import Iterable, Sequence


class StopString:
    """A stop string with its failure function (Knuth, Morris and Pratt), so that no character is looked at twice."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._failure = [0] * len(text)
        """For each beginning of the text, the length of its longest proper end that is a beginning too."""
        length = 0
        for index in range(1, len(text)):
            length = self._advanced(length, text[index])
            self._failure[index] = length

    def find(self, state: int, text: str) -> tuple[int, int | None]:
        """Go on with `state` characters matched; returns the new state and where in `text` a match ended, if one did.

        The state is the length of the longest end of everything seen so far that is a beginning of the stop string.
        """
        if not state and self.text[0] not in text:
            return 0, None
        for index, char in enumerate(text):
            state = self._advanced(state, char)
            if state == len(self.text):
                return state, index + 1
        return state, None

    def _advanced(self, state: int, char: str) -> int:
        while state and self.text[state] != char:
            state = self._failure[state - 1]
        return state + (self.text[state] == char)


def stop_strings(texts: Iterable[str]) -> tuple[StopString, ...]:
    """Prepare stop strings once for all matchers that look for them."""
    return tuple(map(StopString, texts))


class StopMatcher:
    """Passes text on until a stop string appears; holds back only what may be the beginning of one."""

    def __init__(self, stop: Sequence[StopString], *, include: bool = False) -> None:
        """With `include` the stop string itself is passed on as well."""
        self._stop = stop
        self._states = [0] * len(stop)
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
        hits: list[tuple[int, int, str]] = []
        for index, stop in enumerate(self._stop):
            self._states[index], end = stop.find(self._states[index], text)
            if end is not None:
                hits.append((len(self._held) + end - len(stop.text), len(stop.text), stop.text))
        text = self._held + text
        if hits:
            position, length, self.matched = min(hits)
            self._held = ""
            return text[: position + length * self._include]
        held = max(self._states)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def flush(self) -> str:
        """What was held back, once no more text comes."""
        held, self._held = self._held, ""
        return held
