"""Regular expressions, choices and grammars; and that no source ends the process or takes for ever."""

import itertools
import json
import os
import re
import subprocess
import sys
import time

import pytest
from corelm_llguidance.compiler import LLGuidance
from corelm_llguidance.sources import DEEPEST_REFERENCES, LONGEST_GRAMMAR, LONGEST_REGEX, MOST_CHOICES
from walks import compiled, compiler, walk

from corelm.api import InvalidRequestError, RequestFailedError, SamplingParams, StructuredOutput
from corelm.engine.grammars import Grammars
from corelm.testing import FakeTokenizer, allowed_tokens

REGEXES = [
    r"a\\",
    r"https?:\/\/x/",
    r"[a-z]+@[a-z]{2,10}\.(com|org)",
    "^yes$",
    r"\d{3}-\d{4}",
    "(?i)ok",
    r"é[^\x00-\x7f]?|a*b",
    r"(a|bc)*d",
    ".",
]
BAD = {
    ("regex", "("): "unclosed group",
    ("regex", "[a-"): "unclosed character class",
    ("regex", r"(a)\1"): "backreferences",
    ("regex", "(?<=a)b"): "look-behind",
    ("regex", "(?=a)b"): "look-ahead",
    ("regex", "a" * (LONGEST_REGEX + 1)): "at most 8192 characters, not 8193",
    ("regex", "a\\"): "in the middle of an escape",
    ("regex", r"\\" + "\\"): "in the middle of an escape",
    ("choice", "yes"): "must be JSON",
    ("choice", '{"a": 1}'): "must be a list of strings",
    ("choice", "[]"): "1 to 4096 strings, not 0",
    ("choice", json.dumps(["a"] * (MOST_CHOICES + 1))): "not 4097",
    ("choice", '["\\ud800"]'): "surrogate|invalid",
    ("choice", "[" * 100_000): "nested|JSON",
    ("grammar", "start: missing"): "missing",
    ("grammar", "%%% $$$"): "lexer error",
    ("grammar", 'other: "a"'): "no start rule",
    ("grammar", "start: a\na: b\nb: a"): "no text can match",
    ("grammar", 'start: "' + "a" * LONGEST_GRAMMAR + '"'): "at most 16384 characters",
    ("grammar", "start: " + "(" * 5000 + '"a"' + ")" * 5000): "nested",
    ("grammar", "start: %json " + '{"items": ' * 65 + "{}" + "}" * 65): "schema may be nested 64 deep, not 66",
    ("grammar", "start: %json " + "[" * 200_000): "nested too deeply",
    ("grammar", "start: %json " + json.dumps({"items": 3})): "#/items: a schema must be",
}


@pytest.mark.parametrize("regex", REGEXES)
def test_regular_expressions(regex):
    compiler_, grammar = compiled("regex", regex)
    for seed in range(10):
        text, whole = walk(compiler_, grammar, seed=seed)
        assert whole
        assert re.fullmatch(regex.strip("^$"), text.decode()), text


def test_choices_are_taken_for_what_they_are():
    choices = ["yes", "no", "yes!", "", 'a "b"\\', "\n\t", "漢字 é", "<eos>", "/a+/", "%json {}", "|"]
    compiler_, grammar = compiled("choice", json.dumps(choices))
    assert {walk(compiler_, grammar, seed=seed)[0].decode() for seed in range(300)} == set(choices)


def test_names_of_control_tokens_are_only_text():
    assert compiled("choice", '["<bos><eos>"]')[1].matcher().forced() == list(b"<bos><eos>")


def test_grammars():
    source = 'start: "sum: " expr "."\nexpr: NUMBER | "(" expr " + " expr ")"\nNUMBER: /[0-9]{1,3}/'
    compiler_, grammar = compiled("grammar", source)
    for seed in range(20):
        text, whole = walk(compiler_, grammar, seed=seed, most=500)
        if whole:
            inner = text.decode().removeprefix("sum: ").removesuffix(".")
            assert re.fullmatch(r"[0-9() +]+", inner)
            assert inner.count("(") == inner.count(")") == inner.count("+")


@pytest.mark.parametrize(("kind", "source"), BAD, ids=[f"{kind}-{source[:20]}" for kind, source in BAD])
def test_bad_sources_are_refused_each_time(kind, source):
    compiler_ = compiler()
    for _ in range(2):
        with pytest.raises((InvalidRequestError, RequestFailedError), match=BAD[kind, source]) as caught:
            compiler_.masks([compiler_.compile(StructuredOutput(kind=kind, source=source)).matcher()])
        assert len(str(caught.value)) < 400


def test_a_megabyte_or_nothing_is_no_source_at_all():
    for source in ("", "a" * 2**20):
        with pytest.raises(InvalidRequestError, match="1 to 262144 characters"):
            StructuredOutput(kind="regex", source=source)


SEQUENCE = {
    "plain": None,
    "json": StructuredOutput(kind="json_schema", source='{"const": 1}'),
    "regex": StructuredOutput(kind="regex", source="one"),
    "grammar": StructuredOutput(kind="grammar", source='start: "1"'),
    "bad json": StructuredOutput(kind="json_schema", source='{"type": 5}'),
    "bad regex": StructuredOutput(kind="regex", source="("),
    "unsupported": StructuredOutput(kind="json_schema", source='{"not": {}}'),
}


def outcome(grammars, wanted):
    if wanted is None:
        return None
    try:
        return allowed_tokens(grammars.compile(wanted).first_mask)
    except InvalidRequestError as error:
        return str(error)


def test_what_comes_before_changes_nothing():
    def fresh():
        return Grammars(compiler(), vocab_size=258, timeout_s=10, kept=8)

    alone = {name: outcome(fresh(), wanted) for name, wanted in SEQUENCE.items()}
    for pair in itertools.permutations(SEQUENCE, 2):
        grammars = fresh()
        assert [outcome(grammars, SEQUENCE[name]) for name in pair] == [alone[name] for name in pair]
        grammars.close()


def nested(keyword, depth, leaf):
    return {keyword: [leaf, nested(keyword, depth - 1, leaf)]} if depth else leaf


PATHOLOGICAL = {
    "counts": ("regex", "((a{1,100}){1,100}){1,100}"),
    "optional": ("regex", "a?" * (LONGEST_REGEX // 2)),
    "stars": ("regex", "((((a|aa)*)*)*)*b"),
    "distance": ("regex", "(a|b)*a(a|b){500}"),
    "unicode": ("regex", r"\w{0,5000}"),
    "oneOf": ("json_schema", json.dumps(nested("oneOf", 30, {"type": "string"}))),
    "anyOf": ("json_schema", json.dumps(nested("anyOf", 30, {"type": "object", "properties": {"a": {}}}))),
    "products": (
        "json_schema",
        json.dumps({"allOf": [{"anyOf": [{"required": [f"{i}{j}"]} for i in range(8)]} for j in range(8)]}),
    ),
    "loop": ("json_schema", '{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}'),
    "lengths": ("json_schema", '{"type": "string", "minLength": 100000, "maxLength": 1000000}'),
    "items": ("json_schema", '{"type": "array", "items": {}, "minItems": 100000}'),
    "multiple": ("json_schema", '{"type": "integer", "multipleOf": 1000000007}'),
    "properties": ("json_schema", json.dumps({"properties": {f"p{i}": {"type": "integer"} for i in range(2000)}})),
    "ambiguous": ("grammar", 'start: start start | "a" | ""'),
    "doubling": ("grammar", "\n".join(["start: r0", *(f"r{i}: r{i + 1} r{i + 1}" for i in range(60)), 'r60: "a"'])),
    "repeats": ("grammar", 'start: (("a"{1,1000}){1,1000}){1,1000}'),
}


@pytest.mark.parametrize("name", PATHOLOGICAL)
def test_pathological_sources_are_bounded(name):
    kind, source = PATHOLOGICAL[name]
    begin = time.monotonic()
    compiler_ = compiler()
    try:
        matcher = compiler_.compile(StructuredOutput(kind=kind, source=source)).matcher()
        for _ in range(30):
            allowed = [token for token in allowed_tokens(*compiler_.masks([matcher])) if token < 256]
            if not allowed:
                break
            matcher.accept(allowed[-1:])
    except (InvalidRequestError, RequestFailedError):
        pass
    assert time.monotonic() - begin < 5


DEEP = """
import json, sys
from corelm.api import InvalidRequestError, StructuredOutput
from corelm.engine.grammars import Grammars
from corelm.testing import FakeTokenizer
from corelm_llguidance.compiler import LLGuidance

grammars = Grammars(LLGuidance(FakeTokenizer(), 258), vocab_size=258, timeout_s=60, kept=1)
for line in sys.stdin:
    try:
        grammars.compile(StructuredOutput(**json.loads(line)))
    except InvalidRequestError as error:
        print("refused:", error)
    else:
        print("compiled")
"""


def chain_of_references(count, depth):
    """Schemas that are nested so deep, each with a reference to the next at its bottom."""
    schema = {"$defs": {}, "$ref": "#/$defs/0"}
    for number in range(count):
        one = {"$ref": f"#/$defs/{number + 1}"}
        for _ in range(depth - 3):
            one = {"items": one}
        schema["$defs"][str(number)] = one
    schema["$defs"][str(count)] = {"type": "string"}
    return json.dumps(schema)


def test_the_schemas_of_a_grammar_do_not_count_against_its_length():
    schemas = [json.dumps({"const": f"{number} {'long' * 100}"}) for number in range(100)]
    rules = [f"r{number}: %json {schema}" for number, schema in enumerate(schemas)]
    source = "\n".join([f"start: {' | '.join(f'r{number}' for number in range(100))}", *rules])
    assert len(source) > 2 * LONGEST_GRAMMAR
    assert compiled("grammar", source)


def test_no_source_is_so_deep_that_the_process_ends():
    rules = LONGEST_GRAMMAR // 12
    sources = [
        ("grammar", "\n".join(["start: r0", *(f"r{i}: r{i + 1}" for i in range(rules)), f'r{rules}: "a"'])),
        ("grammar", "\n".join(["start: T0", *(f"T{i}: T{i + 1}" for i in range(rules)), f'T{rules}: "a"'])),
        ("grammar", "start: /" + "(" * 8000 + "a" + ")" * 8000 + "/"),
        ("regex", "(" * 4000 + "a" + ")" * 4000),
        ("json_schema", chain_of_references(DEEPEST_REFERENCES // 4 - 1, 4)),
        ("json_schema", chain_of_references(DEEPEST_REFERENCES // 60 - 1, 60)),
        ("json_schema", chain_of_references(DEEPEST_REFERENCES // 4 + 1, 4)),
    ]
    lines = "".join(json.dumps({"kind": kind, "source": source}) + "\n" for kind, source in sources)
    done = subprocess.run(
        [sys.executable, "-c", DEEP], input=lines, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    verdicts = [line.partition(":")[0] for line in done.stdout.splitlines()]
    assert verdicts == ["compiled", "compiled", "refused", "refused", "compiled", verdicts[5], "refused"]


def go_on(compiler_, matchers, matcher):
    for _ in range(1000):
        compiler_.masks(matchers)
        matcher.accept([ord("a")])


def test_an_output_that_becomes_too_complex_fails():
    compiler_, grammar = compiled("regex", "((a{1,100}){1,100}){1,100}")
    matcher, other = grammar.matcher(), compiled("regex", "b*")[1].matcher()
    with pytest.raises(RequestFailedError, match="structured_output: lexer error: too many"):
        go_on(compiler_, [other, matcher], matcher)
    with pytest.raises(RequestFailedError, match="structured_output"):
        compiler_.masks([matcher])
    assert allowed_tokens(*compiler_.masks([other])) == [ord("b"), 257]
    fresh = grammar.matcher()
    assert allowed_tokens(*compiler_.masks([fresh])) == [ord("a")]


def test_a_token_that_does_not_fit_is_an_error():
    matcher = compiled("regex", "ab")[1].matcher()
    with pytest.raises(RequestFailedError, match="structured_output: "):
        matcher.accept([ord("b")])


def test_a_model_without_an_end_token():
    class Endless(FakeTokenizer):
        eos_token_ids = frozenset()

    with pytest.raises(InvalidRequestError, match="no token that ends an output"):
        LLGuidance(Endless(), 258).compile(StructuredOutput(kind="regex", source="a"))


def test_a_tokenizer_that_puts_a_space_before_texts():
    class Prefixing(FakeTokenizer):
        def encode(self, text, *, add_special_tokens=True):
            return super().encode(" " + text)

    compiler_ = LLGuidance(Prefixing(), 258)
    grammar = compiler_.compile(StructuredOutput(kind="choice", source='["a long text"]'))
    assert grammar.matcher().forced() == list(b"a long text")
    assert walk(compiler_, grammar) == (b"a long text", True)


def test_loading_the_plugin_imports_nothing_heavy():
    code = "import sys, corelm_llguidance; print({'numpy', 'llguidance'} & set(sys.modules))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout == (
        "set()\n"
    )


def test_parameters_refuse_what_is_no_kind():
    with pytest.raises(InvalidRequestError, match="structured_output"):
        SamplingParams(structured_output=StructuredOutput(kind="yaml", source="a"))
