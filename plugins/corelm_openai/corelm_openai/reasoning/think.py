"""Thoughts between ``<think>`` and ``</think>``, as of DeepSeek R1 and Qwen3."""

from collections.abc import Iterator

from corelm_openai.formats import ReasoningFormat, ReasoningParser, Thoughts
from corelm_openai.reader import Reader, advance

BEGIN, END = "<think>", "</think>"


class Think(ReasoningFormat):
    """The format. Thoughts are those that an output begins with; the prompt may have opened them."""

    def parser(self, prompt_end: str) -> ReasoningParser:
        return ThinkParser(thinking=prompt_end.rstrip().endswith(BEGIN))


class ThinkParser:
    """Reads one output. White space around thoughts is left out."""

    def __init__(self, *, thinking: bool) -> None:
        self._reader = Reader()
        self._steps = _steps(self._reader, thinking)

    def push(self, text: str, *, last: bool = False) -> Thoughts:
        """What `text` adds."""
        self._reader.feed(text, last=last)
        found = advance(self._steps)
        return Thoughts(
            "".join(thoughts.reasoning for thoughts in found), "".join(thoughts.answer for thoughts in found)
        )


def _steps(reader: Reader, thinking: bool) -> Iterator[Thoughts | None]:
    yield from reader.space()
    if thinking or (yield from reader.literal(BEGIN)):
        yield from reader.space()
        reader.accept()
        for text in reader.content([END]):
            yield None if text is None else Thoughts(text, "")
        yield from reader.space()
        reader.accept()
    else:
        for text in reader.reject():
            yield None if text is None else Thoughts("", text)
    for text in reader.everything():
        yield None if text is None else Thoughts("", text)
