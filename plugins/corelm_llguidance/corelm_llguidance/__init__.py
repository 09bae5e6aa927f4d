"""Structured outputs with llguidance: JSON Schemas, regular expressions, choices and grammars."""

from corelm.api import GrammarCompiler, GrammarContext, Register, hookimpl


@hookimpl
def corelm_register_grammars(register: Register[GrammarContext, GrammarCompiler]) -> None:
    register("llguidance", _create, summary="JSON Schema, regular expressions, choices, and grammars like Lark's")


def _create(context: GrammarContext) -> GrammarCompiler:
    from corelm_llguidance.compiler import LLGuidance  # imports numpy and the library

    return LLGuidance(context.tokenizer, context.vocab_size)
