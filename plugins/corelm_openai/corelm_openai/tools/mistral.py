"""The formats of Mistral: ``[TOOL_CALLS][{"name": "f", "arguments": {}}]`` and ``[TOOL_CALLS]f[ARGS]{}``."""

import re
import secrets
import string
from collections.abc import Mapping, Sequence, Set

from corelm_openai.formats import ToolFormat, ToolFunction, ToolParser
from corelm_openai.reader import Reader, StepParser, Steps
from corelm_openai.tools.json_calls import json_calls, streamed_arguments
from corelm_openai.tools.rules import calls_of, json_object_calls, marker, quoted, repeated

CALLS, ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_NAME = re.compile(r"[\w.-]+", re.ASCII)
_ID_LENGTH = 9


class Mistral(ToolFormat):
    """Both formats. Calls are forced in the newer one, if the model has its tokens."""

    markers = (CALLS, ID, ARGS)
    special_tokens = True

    def parser(self, names: Set[str]) -> ToolParser:
        reader = Reader()
        return StepParser(reader, _steps(reader, names))

    def rules(self, functions: Sequence[ToolFunction], tokens: Mapping[str, int], *, parallel: bool) -> str:
        begin = marker(CALLS, tokens)
        if ARGS in tokens:
            calls = repeated("call_block", "", parallel=parallel)
            named = calls_of(functions, lambda name: f"{quoted(name)} {marker(ARGS, tokens)}")
            return f"calls: {calls}\ncall_block: {begin} call\n{named}"
        calls = repeated("call", quoted(", "), parallel=parallel)
        return f'calls: {begin} "[" {calls} "]"\n{json_object_calls(functions, "arguments")}'

    def new_id(self) -> str:
        """Mistral's chat templates take no others."""
        return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(_ID_LENGTH))


def _steps(reader: Reader, names: Set[str]) -> Steps[None]:
    while (yield from reader.content([CALLS])) is not None:
        yield from reader.space()
        in_list = (yield from reader.peek()) in ("[", "{")
        if (yield from (json_calls if in_list else _named_call)(reader, names)):
            yield from reader.space()
            reader.accept()
        else:
            yield from reader.reject()


def _named_call(reader: Reader, names: Set[str]) -> Steps[bool]:
    """Read a name, perhaps an id, and arguments."""
    name = yield from reader.run(_NAME)
    if name not in names:
        return False
    if (yield from reader.literal(ID)):
        yield from reader.run(_NAME)
    yield from reader.literal(ARGS)
    yield from reader.space()
    return (yield from streamed_arguments(reader, name))
