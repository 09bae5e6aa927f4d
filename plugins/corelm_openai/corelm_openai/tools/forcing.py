"""What an output must look like where tools may, or must, be called."""

from collections.abc import Mapping

from corelm.api import InvalidRequestError, StructuredOutput
from corelm_openai.formats import ToolFormat
from corelm_openai.generation.structured import Form
from corelm_openai.http.errors import renaming
from corelm_openai.tools.offer import Offer
from corelm_openai.tools.rules import json_value

TOOL_CHOICE = "tool_choice"


def with_calls(form: Form | None, offered: Offer, tools: ToolFormat, tokens: Mapping[str, int]) -> Form | None:
    """The form of outputs that make a call, if one is forced; else of those that make calls or have `form`.

    Raises `InvalidRequestError` if the two do not go together.
    """
    if offered.forced:
        if form is not None:
            raise InvalidRequestError(
                f"{form.param} does not go together with a {TOOL_CHOICE} that asks for a call", param=form.param
            )
        return _grammar(TOOL_CHOICE, "start: calls\n" + tools.rules(offered.forced, tokens, parallel=offered.parallel))
    if form is None:
        return None
    if form.output.kind != "json_schema":
        raise InvalidRequestError(
            f"{form.param} does not go together with tools, unless {TOOL_CHOICE} is none", param=form.param
        )
    rules = tools.rules(offered.functions, tokens, parallel=offered.parallel)
    return _grammar(form.param, f"start: calls | answer\nanswer: {json_value(form.output.source)}\n{rules}")


def _grammar(param: str, source: str) -> Form:
    with renaming({"structured_output": param}):
        return Form(param, StructuredOutput(kind="grammar", source=source))
