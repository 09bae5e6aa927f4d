"""Conversations with tools for models whose chat template knows none: everything is told as text."""

from collections.abc import Sequence
from typing import Any

from corelm_openai.formats import ToolFormat

Message = dict[str, Any]


def as_text(messages: Sequence[Message], tools: ToolFormat, instructions: str | None) -> list[Message]:
    """The messages, with calls and their results as text, and the `instructions`, if any, at the end of the first
    one from the system."""
    told = [_told(message, tools) for message in messages]
    if instructions is None:
        return told
    if told[0]["role"] not in ("system", "developer"):
        return [{"role": "system", "content": instructions}, *told]
    return [{**told[0], "content": f"{told[0]['content']}\n\n{instructions}"}, *told[1:]]


def _told(message: Message, tools: ToolFormat) -> Message:
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}
    if "tool_calls" not in message:
        return message
    functions = [call["function"] for call in message["tool_calls"]]
    calls = [tools.as_text(function["name"], function["arguments"]) for function in functions]
    return {"role": message["role"], "content": "\n".join(filter(None, [message["content"], *calls]))}
