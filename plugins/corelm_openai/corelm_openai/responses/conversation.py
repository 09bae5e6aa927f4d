"""From items to the messages of a chat."""

from collections.abc import Iterable, Sequence

from corelm.api import InvalidRequestError
from corelm_openai.chat.messages import Message as ChatMessage
from corelm_openai.chat.messages import Part
from corelm_openai.http.errors import shortened
from corelm_openai.responses.items import (
    FunctionCall,
    FunctionCallOutput,
    InputText,
    Item,
    Message,
    OutputText,
    Reasoning,
    Refusal,
)
from corelm_openai.tools.wire import FunctionCall as CalledFunction
from corelm_openai.tools.wire import ToolCall


def chat_messages(items: Iterable[Item]) -> list[ChatMessage]:
    """The conversation. What the assistant thought, said and called before anybody else spoke is one message."""
    messages: list[ChatMessage] = []
    for item in items:
        match item:
            case FunctionCallOutput():
                messages.append(ChatMessage(role="tool", content=item.output, tool_call_id=item.call_id))
            case Message(role="assistant"):
                _answer(messages, item)
            case Message():
                messages.append(ChatMessage(role=item.role, content=_parts(item)))
            case FunctionCall():
                _call(messages, item)
            case Reasoning(content=content) if content:
                thoughts = "\n".join(part.text for part in content)
                messages.append(ChatMessage(role="assistant", content="", reasoning_content=thoughts))
    return messages


def check_outputs(items: Sequence[Item]) -> None:
    """Raise `InvalidRequestError` for an output of a function that nobody called before."""
    called: set[str] = set()
    for item in items:
        if isinstance(item, FunctionCall):
            called.add(item.call_id)
        elif isinstance(item, FunctionCallOutput) and item.call_id not in called:
            raise InvalidRequestError(
                f"input: no function call before this output has the call_id {shortened(item.call_id)}", param="input"
            )


def _answer(messages: list[ChatMessage], item: Message) -> None:
    last = messages[-1] if messages else None
    if last and last.reasoning_content is not None and not last.content and not last.tool_calls:
        last.content = _parts(item)
    else:
        messages.append(ChatMessage(role="assistant", content=_parts(item)))


def _call(messages: list[ChatMessage], item: FunctionCall) -> None:
    if not messages or messages[-1].role != "assistant":
        messages.append(ChatMessage(role="assistant"))
    turn = messages[-1]
    if turn.tool_calls is None:
        turn.tool_calls = []
    function = CalledFunction(name=item.name, arguments=item.arguments)
    turn.tool_calls.append(ToolCall(id=item.call_id, function=function))


def _parts(item: Message) -> list[Part]:
    return [_part(part) for part in item.content]


def _part(part: InputText | OutputText | Refusal) -> Part:
    if isinstance(part, Refusal):
        return Part(type="refusal", refusal=part.refusal)
    return Part(type="text", text=part.text)
