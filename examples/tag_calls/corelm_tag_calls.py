"""A tool format: calls that are written as ``<function=name>{"a": 1}</function>``."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set

from corelm_openai.formats import Arguments, Call, FormatContext, Piece, ToolFormat, ToolFunction, ToolParser

from corelm.api import RegisterExtension, hookimpl

corelm_api = ((0, 2), (1, 0))

BEGIN, END = "<function=", "</function>"
CALL = re.compile(r"<function=([\w.-]+)>\s*(\{.*\})\s*</function>", re.DOTALL)


class TagCalls(ToolFormat):
    """The format. The choice ``required`` works too, as it can say what calls look like."""

    def parser(self, names: Set[str]) -> ToolParser:
        return TagCallParser(names)

    def rules(self, functions: Sequence[ToolFunction], tokens: Mapping[str, int], *, parallel: bool) -> str:
        calls = [self._call(function) for function in functions]
        return f"calls: call{'+' if parallel else ''}\ncall: {' | '.join(calls)}"

    def _call(self, function: ToolFunction) -> str:
        opening = json.dumps(f"{BEGIN}{function.name}>")
        return f"{opening} %json {json.dumps(function.parameters)} {json.dumps(END)}"


class TagCallParser:
    """Reads one output. Calls come whole; the text around them comes at once, but for what may begin a call."""

    def __init__(self, names: Set[str]) -> None:
        self._names = names
        self._held = ""

    def push(self, text: str, *, last: bool = False) -> Sequence[Piece]:
        """What `text` adds."""
        self._held += text
        return [piece for piece in self._pieces(last) if piece]

    def _pieces(self, last: bool) -> Iterator[Piece]:
        while (end := self._held.find(END)) >= 0:
            yield from self._until(end + len(END))
        yield self._cut(len(self._held) if last else self._first_doubtful())

    def _until(self, end: int) -> Iterator[Piece]:
        """The text up to `end`, where something ends that may be a call."""
        start = self._held.rfind(BEGIN, 0, end)
        yield self._cut(max(start, 0))
        whole = self._cut(end - max(start, 0))
        found = CALL.fullmatch(whole)
        if found and found[1] in self._names and _is_object(found[2]):
            yield Call(found[1])
            yield Arguments(found[2])
        else:
            yield whole

    def _cut(self, size: int) -> str:
        text, self._held = self._held[:size], self._held[size:]
        return text

    def _first_doubtful(self) -> int:
        """Where a call begins, or may be about to."""
        start = self._held.find(BEGIN)
        if start >= 0:
            return start
        return next(
            (place for place in range(len(self._held)) if BEGIN.startswith(self._held[place:])), len(self._held)
        )


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


@hookimpl
def corelm_openai_register_tool_formats(register: RegisterExtension[FormatContext, ToolFormat]) -> None:
    register("tags", lambda context: TagCalls(), summary="<function=name>{...}</function>")
