"""The format of Llama 3.2 and others: a list of Python calls, ``[f(a=1), g(b="x")]``."""

import ast
import json
import re
import warnings
from collections.abc import Mapping, Sequence, Set
from typing import Any

from corelm_openai.formats import Arguments, Call, ToolFormat, ToolFunction, ToolParser
from corelm_openai.reader import Reader, StepParser, Steps
from corelm_openai.tools.json_calls import json_calls
from corelm_openai.tools.rules import json_object_calls, quoted, repeated
from corelm_openai.tools.spans import Syntax, bracketed

PYTHON = Syntax({"(": ")", "[": "]", "{": "}"}, "\"'", re.compile(r"[^()\[\]{}\"']+"))
_NAME = re.compile(r"[\w.-]+", re.ASCII)
_CONSTANTS = {"true": True, "false": False, "null": None}
"""Names that models write for them."""


class Pythonic(ToolFormat):
    """The format. Calls come whole, as what is Python is no JSON yet; forced ones are a list of JSON objects."""

    def parser(self, names: Set[str]) -> ToolParser:
        reader = Reader()
        return StepParser(reader, _steps(reader, names))

    def rules(self, functions: Sequence[ToolFunction], tokens: Mapping[str, int], *, parallel: bool) -> str:
        calls = repeated("call", quoted(", "), parallel=parallel)
        return f'calls: "[" {calls} "]"\n{json_object_calls(functions, "arguments")}'


def _steps(reader: Reader, names: Set[str]) -> Steps[None]:
    while (yield from reader.content(["["])) is not None:
        if (yield from _calls(reader, names)):
            yield from reader.space()
            reader.accept()
        else:
            yield from reader.reject()


def _calls(reader: Reader, names: Set[str]) -> Steps[bool]:
    yield from reader.space()
    if (yield from reader.peek()) == "{":
        reader.back(len(reader.passed().lstrip()))
        return (yield from json_calls(reader, names))
    found = False
    while (yield from _call(reader, names)):
        found = True
        yield from reader.space()
        if not (yield from reader.literal(",")):
            yield from reader.literal("]")
            reader.accept()
            break
        yield from reader.space()
    if found:
        yield from reader.reject()
    return found


def _call(reader: Reader, names: Set[str]) -> Steps[bool]:
    name = yield from reader.run(_NAME)
    if name not in names or (yield from reader.peek()) != "(":
        return False
    before = len(reader.passed())
    if not (yield from bracketed(reader, PYTHON)):
        return False
    arguments = _as_json(reader.passed()[before:])
    if arguments is None:
        return False
    reader.accept()
    yield Call(name)
    yield Arguments(arguments)
    return True


def _as_json(source: str) -> str | None:
    """Keyword arguments in brackets as a JSON object; None if they are not literals."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler has advice on strings
            call = ast.parse(f"f{source}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            return None
        values = {str(keyword.arg): _value(keyword.value) for keyword in call.keywords if keyword.arg is not None}
        return json.dumps(values, allow_nan=False) if len(values) == len(call.keywords) else None
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        return _CONSTANTS[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        keys = [ast.literal_eval(key) if key else None for key in node.keys]
        return dict(zip(keys, map(_value, node.values), strict=True))
    return ast.literal_eval(node)
