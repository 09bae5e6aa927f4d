import json
import re
import time
import warnings

import pytest
from corelm_openai.tools.formats import TOOL_FORMATS
from hypothesis import given
from hypothesis import strategies as st
from tool_texts import NAMES, cut, read, written

every_format = pytest.mark.parametrize("form", TOOL_FORMATS)

FOUND = [
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', [("f", '{"a": 1}')]),
    (
        "hermes",
        'I see.\n<tool_call>{"name":"f","arguments":{}}</tool_call>\n<tool_call>\n{"name":"a.b-c"}</tool_call> Done.',
        ["I see.", ("f", "{}"), ("a.b-c", "{}"), "Done."],
    ),
    (
        "hermes",
        '<tool_call>[{"name": "f", "arguments": {}}, {"name": "f", "arguments": {"a": [1]}}]</tool_call>',
        [("f", "{}"), ("f", '{"a": [1]}')],
    ),
    ("hermes", '<tool_call>{"arguments": {"a": "}"}, "name": "f"}</tool_call>', [("f", '{"a": "}"}')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"é\\"}"}</tool_call>', [("f", '{"a": "\\u00e9"}')]),
    ("hermes", '<tool_call>{"id": 7, "name": "f", "arguments": null}</tool_call>', [("f", "{}")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {}, "type": "function"}</tool_call>', [("f", "{}")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}', [("f", '{"a": "</tool_call>"}')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": [1, {"b": "x', [("f", '{"a": [1, {"b": "x')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {}}</tool', [("f", "{}")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {}} and more', [("f", "{}"), "and more"]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1] oh', [("f", '{"a": 1'), "] oh"]),
    ("llama3_json", '{"name": "f", "parameters": {"a": 1}}', [("f", '{"a": 1}')]),
    ("llama3_json", ' <|python_tag|>{"name": "f", "arguments": {}}', [("f", "{}")]),
    (
        "llama3_json",
        '{"name": "f", "parameters": {}}; {"name": "f", "parameters": {"a": "{"}}',
        [("f", "{}"), ("f", '{"a": "{"}')],
    ),
    ("llama3_json", 'So: {"name": "f", "parameters": {}}', ["So:", ("f", "{}")]),
    (
        "mistral",
        '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "f", "arguments": {}}]',
        [("f", '{"a": 1}'), ("f", "{}")],
    ),
    ("mistral", '[TOOL_CALLS]{"name": "f", "arguments": {}}', [("f", "{}")]),
    (
        "mistral",
        '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]a.b-c[CALL_ID]x1[ARGS]{}',
        [("f", '{"a": 1}'), ("a.b-c", "{}")],
    ),
    ("mistral", 'Well, [TOOL_CALLS]f{"a": [[]]}', ["Well,", ("f", '{"a": [[]]}')]),
    (
        "pythonic",
        "[f(a=1, b='x)]', c=[True, None, true, null, (1, 2)], d={'k': -1.5}), get_weather()]",
        [("f", '{"a": 1, "b": "x)]", "c": [true, null, true, null, [1, 2]], "d": {"k": -1.5}}'), ("get_weather", "{}")],
    ),
    ("pythonic", 'Fine. [f(a="\\"\\u00e9\\d")] ok', ["Fine.", ("f", '{"a": "\\"\\u00e9\\\\d"}'), "ok"]),
    ("pythonic", '[{"name": "f", "arguments": {"a": 1}}]', [("f", '{"a": 1}')]),
    ("pythonic", "[f(a=1), g(b=2)]", [("f", '{"a": 1}'), ", g(b=2)]"]),
]
TEXT = [
    ("hermes", "<tool_call>nope</tool_call>"),
    ("hermes", '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
    ("hermes", "<tool_call>{'name': 'f', 'arguments': {}}</tool_call>"),
    ("hermes", '<tool_call>{"name": "f", "arguments": {\'a\': 1}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f", "arguments": "no JSON"}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f", "note": 1, "arguments": {}}</tool_call>'),
    ("hermes", '<tool_call>{"name": 5}</tool_call><tool_call>[]</tool_call><tool_call>{}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f"'),
    ("hermes", "if a <tool_calls and a < tool_call> \n"),
    ("hermes", "  \n"),
    ("llama3_json", '{"a": {"name": "g", "parameters": {}}} and {"name": "f"'),
    ("llama3_json", '<|python_tag|>brave_search.call(query="x")'),
    ("mistral", "[TOOL_CALLS]unknown[ARGS]{}"),
    ("mistral", "[TOOL_CALLS] what [TOOL_CALL"),
    ("pythonic", "see [1], [f], [f(1)], [f(a=x)], [f(**{})], [f(a={1})], [f(a=1e999)], [f(a=1, a=2)] and [f(a="),
]


@pytest.mark.parametrize(("form", "text", "found"), FOUND)
def test_calls_are_found(form, text, found):
    assert read(form, [text]) == found
    assert read(form, list(text)) == found


@pytest.mark.parametrize(("form", "text"), TEXT)
def test_what_is_no_call_is_text(form, text):
    assert read(form, [text]) == [text]
    assert read(form, list(text)) == [text]


def test_nothing_is_said_of_python():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read("pythonic", [r'[f(a="\d")]']) == [("f", r'{"a": "\\d"}')]


FRAGMENTS = [
    *(
        "<tool_call>",
        "</tool_call>",
        "<tool_",
        "<|python_tag|>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[",
        "]",
        "(",
        ")",
        "f",
        "f(",
    ),
    *("a=", "'x'", '"', '"f"', '{"name": "f", "arguments": {', '{"name": "', '"parameters": ', "{", "}", ":", ",", " "),
    *("\n", "\\", "é", "12", "null", "; ", '"a": 1}}', "true"),
]
noise = st.lists(st.sampled_from(FRAGMENTS), max_size=20).map("".join)
places = st.lists(st.integers(0, 120), max_size=8)


@every_format
@given(text=noise, places=places)
def test_pieces_make_no_difference(form, text, places):
    whole = read(form, [text])
    assert read(form, cut(text, places)) == whole
    assert read(form, [*cut(text, places), ""]) == whole
    if all(isinstance(item, str) for item in whole):
        assert "".join(whole) == text


scalars = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(st.sampled_from(["a", "b_c", "x1"]), values, max_size=3)
calls = st.lists(st.tuples(st.sampled_from(["f", "get_weather"]), arguments), min_size=1, max_size=3)
words = st.sampled_from(["", "Well, then.", "so: é"])


@every_format
@given(calls=calls, places=places, before=words, after=words)
def test_calls_come_through(form, calls, places, before, after):
    text = f"{before} {written(form, calls)}\n{after}"
    found = read(form, cut(text, places))
    said = [item for item in found if isinstance(item, str)]
    assert said == [text for text in (before, after) if text]
    assert [(item[0], json.loads(item[1])) for item in found if not isinstance(item, str)] == calls


@every_format
def test_arguments_are_passed_on_as_they_come(form):
    if form == "pythonic":
        pytest.skip("its calls come whole")
    parser = TOOL_FORMATS[form]().parser(NAMES)
    text = written(form, [("f", {"a": "x" * 100})])
    begin = text.index("xxx")
    parser.push(text[:begin])
    assert "".join(piece.text for piece in parser.push("xxxxx")) == "xxxxx"


@every_format
def test_long_outputs_take_no_long_time(form):
    start = time.process_time()
    opening = {"hermes": "<tool_call>", "mistral": "[TOOL_CALLS]"}.get(form, "")
    for text in (
        written(form, [("f", {"a": "x{ " * 20_000})]),
        opening + '{"name": "' * 10_000,
        "[f('" * 20_000,
        "[" * 50_000,
        " " * 50_000,
    ):
        read(form, cut(text, range(0, len(text), 7)))
    assert time.process_time() - start < 5


def test_ids_of_calls():
    assert re.fullmatch("call_[0-9a-f]{24}", TOOL_FORMATS["hermes"]().new_id())
    assert re.fullmatch("[A-Za-z0-9]{9}", TOOL_FORMATS["mistral"]().new_id())
