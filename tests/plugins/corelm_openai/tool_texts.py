"""Outputs with calls, as models write them, and what they mean."""

import json
from itertools import pairwise

from corelm_openai.formats import Arguments, Call
from corelm_openai.tools.formats import TOOL_FORMATS

NAMES = frozenset({"f", "get_weather", "a.b-c"})


def read(form, pieces, names=NAMES):
    """What a format makes of an output's pieces: texts, and calls as pairs of name and arguments."""
    return read_with(TOOL_FORMATS[form]().parser(names), pieces)


def read_with(parser, pieces):
    """What a parser makes of them."""
    found = []
    for number, text in enumerate(pieces):
        for piece in parser.push(text, last=number == len(pieces) - 1):
            match piece:
                case Call(name):
                    found.append((name, ""))
                case Arguments(more):
                    assert more
                    name, arguments = found.pop()
                    found.append((name, arguments + more))
                case str():
                    assert piece
                    before = found.pop() if found and isinstance(found[-1], str) else ""
                    found.append(before + piece)
    return found


def cut(text, places):
    """The text in pieces."""
    bounds = sorted({min(place, len(text)) for place in places} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(bounds)] or [""]


def written(form, calls):
    """Calls, pairs of a name and a dictionary, in a format."""
    if form == "hermes":
        return "\n".join(f"<tool_call>\n{_object(*call)}\n</tool_call>" for call in calls)
    if form == "llama3_json":
        return "; ".join(_object(*call, key="parameters") for call in calls)
    if form == "mistral":
        return "".join(f"[TOOL_CALLS]{name}[ARGS]{json.dumps(arguments)}" for name, arguments in calls)
    return f"[{', '.join(_python(*call) for call in calls)}]"


def _object(name, arguments, key="arguments"):
    return json.dumps({"name": name, key: arguments}, ensure_ascii=False)


def _python(name, arguments):
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
