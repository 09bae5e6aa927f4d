"""The format of Hermes and Qwen: ``<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>``."""

import json
from collections.abc import Mapping, Sequence, Set
from typing import Any

from corelm_openai.formats import ToolFormat, ToolFunction, ToolParser
from corelm_openai.reader import Reader, StepParser, Steps
from corelm_openai.tools.json_calls import json_calls
from corelm_openai.tools.rules import json_object_calls, marker, quoted, repeated

BEGIN, END = "<tool_call>", "</tool_call>"


class Hermes(ToolFormat):
    """The format."""

    markers = (BEGIN, END)
    special_tokens = True

    def parser(self, names: Set[str]) -> ToolParser:
        reader = Reader()
        return StepParser(reader, _steps(reader, names))

    def rules(self, functions: Sequence[ToolFunction], tokens: Mapping[str, int], *, parallel: bool) -> str:
        line = quoted("\n")
        calls = repeated("call_block", line, parallel=parallel)
        block = f"{marker(BEGIN, tokens)} {line} call {line} {marker(END, tokens)}"
        return f"calls: {calls}\ncall_block: {block}\n{json_object_calls(functions, 'arguments')}"

    def instructions(self, functions: Sequence[ToolFunction]) -> str:
        described = "\n".join(json.dumps(_described(function), ensure_ascii=False) for function in functions)
        example = self.as_text("NAME", {"PARAMETER": "VALUE"})
        return f"You can call these functions:\n{described}\n\nTo call one, write:\n{example}"

    def as_text(self, name: str, arguments: Mapping[str, Any]) -> str:
        return f"{BEGIN}\n{super().as_text(name, arguments)}\n{END}"


def _described(function: ToolFunction) -> dict[str, Any]:
    return {"name": function.name, "description": function.description, "parameters": function.parameters}


def _steps(reader: Reader, names: Set[str]) -> Steps[None]:
    while (yield from reader.content([BEGIN])) is not None:
        yield from reader.space()
        if (yield from json_calls(reader, names)):
            yield from reader.space()
            yield from reader.literal(END, cut=True)
            yield from reader.space()
            reader.accept()
        else:
            yield from reader.reject()
