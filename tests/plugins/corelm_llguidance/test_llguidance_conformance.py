import json

from corelm_llguidance.compiler import LLGuidance

from corelm.api import StructuredOutput
from corelm.testing import GrammarConformance

SCHEMA = {
    "$defs": {
        "node": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}
    },
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "n": {"type": "integer", "minimum": 3, "maximum": 20_000_000_000},
        "tree": {"$ref": "#/$defs/node"},
        "when": {"type": "string", "format": "date"},
    },
    "required": ["name", "n"],
    "additionalProperties": False,
}


class TestLLGuidance(GrammarConformance):
    sources = (
        *GrammarConformance.sources,
        StructuredOutput(kind="json_schema", source=json.dumps(SCHEMA)),
        StructuredOutput(kind="json_schema", source="{}"),
        StructuredOutput(kind="json_schema", source="true"),
        StructuredOutput(kind="grammar", source='start: "Q: " WORD (", " WORD)* "?"\nWORD: /[a-z]{1,9}/'),
    )
    bad_sources = (
        *GrammarConformance.bad_sources,
        StructuredOutput(kind="regex", source="("),
        StructuredOutput(kind="grammar", source="start: missing"),
    )

    def make_compiler(self, context):
        return LLGuidance(context.tokenizer, context.vocab_size)


class TestInThreads(TestLLGuidance):
    def make_compiler(self, context):
        return LLGuidance(context.tokenizer, context.vocab_size, threads=2)
