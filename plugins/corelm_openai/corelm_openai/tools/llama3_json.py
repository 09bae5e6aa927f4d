"""The format of Llama 3.1: ``{"name": "f", "parameters": {"a": 1}}``, perhaps after ``<|python_tag|>``."""

from collections.abc import Mapping, Sequence, Set

from corelm_openai.formats import ToolFormat, ToolFunction, ToolParser
from corelm_openai.reader import Reader, StepParser, Steps
from corelm_openai.tools.json_calls import json_call
from corelm_openai.tools.rules import json_object_calls, quoted, repeated

TAG = "<|python_tag|>"


class Llama3Json(ToolFormat):
    """The format."""

    markers = (TAG,)
    special_tokens = True

    def parser(self, names: Set[str]) -> ToolParser:
        reader = Reader()
        return StepParser(reader, _steps(reader, names))

    def rules(self, functions: Sequence[ToolFunction], tokens: Mapping[str, int], *, parallel: bool) -> str:
        calls = repeated("call", quoted("; "), parallel=parallel)
        return f"calls: {calls}\n{json_object_calls(functions, 'parameters')}"


def _steps(reader: Reader, names: Set[str]) -> Steps[None]:
    while (marker := (yield from reader.content([TAG, "{"]))) is not None:
        if marker == TAG:
            yield from reader.space()
        else:
            reader.back(len(marker))
        if (yield from json_call(reader, names)):
            yield from reader.space()
            yield from reader.literal(";")
            yield from reader.space()
            reader.accept()
        else:
            yield from reader.reject()
