"""From messages and tools to the conversation that the model's template renders."""

from collections.abc import Mapping, Sequence
from typing import Any

from corelm.api import InvalidRequestError
from corelm_openai.chat.messages import Message
from corelm_openai.chat.model_formats import ModelFormats
from corelm_openai.chat.transcript import as_text
from corelm_openai.tools.offer import Offer

MAX_ARGUMENTS = 2**20
"""Characters in the arguments of all calls. More take long to decode, and fit no context."""


def conversation(messages: Sequence[Message], offered: Offer | None, formats: ModelFormats) -> dict[str, Any]:
    """The messages and tools of a `corelm.api.Chat`. Raises `InvalidRequestError`."""
    if not messages:
        raise InvalidRequestError("messages is empty", param="messages")
    calls = [call.function for message in messages for call in message.tool_calls or ()]
    if sum(len(call.arguments) for call in calls) > MAX_ARGUMENTS:
        raise InvalidRequestError(
            f"the arguments of all calls must have at most {MAX_ARGUMENTS} characters", param="messages"
        )
    plain = [message.plain(f"messages[{index}]") for index, message in enumerate(messages)]
    if formats.template_knows_tools:
        return {"messages": plain, "tools": offered.described if offered else ()}
    instructions = None
    if offered is not None:
        instructions = formats.tools.instructions(offered.functions)
        if instructions is None:
            raise InvalidRequestError(
                "this model's chat template does not tell it about tools, and its tool format needs that", param="tools"
            )
    return {"messages": as_text(plain, formats.tools, instructions)}


def template_variables(effort: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Variables for the template: those that are `given`, and what templates call the `effort` to think."""
    if effort is None:
        return dict(given)
    thinking = {"enable_thinking": False} if effort == "none" else {}
    return {"reasoning_effort": effort, **thinking, **given}
