"""The reply of ``/v1/chat/completions``."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from corelm.api import RequestOutput
from corelm_openai.chat.body import ChatJob
from corelm_openai.chat.turns import CallDelta, TurnDelta, TurnReader
from corelm_openai.generation.envelopes import Choice, Envelope, EnvelopeReply
from corelm_openai.generation.logprobs import ChatLogprobs, PromptLogprobs, chat_logprobs, prompt_logprobs
from corelm_openai.generation.vocabulary import Vocabulary
from corelm_openai.tools.wire import FunctionCall, ToolCall


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What the model says."""

    role: str
    content: str | None
    """None if there are calls and nothing else."""
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: Sequence[ToolCall] | UnsetType = UNSET


class FunctionDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk adds to a call."""

    name: str | UnsetType = UNSET
    arguments: str


class ToolCallDelta(msgspec.Struct, frozen=True, kw_only=True):
    """A call, or a piece of its arguments."""

    index: int
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionDelta


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk adds to the message."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: Sequence[ToolCallDelta] | UnsetType = UNSET


class MessageChoice(Choice, frozen=True, kw_only=True):
    """A whole choice."""

    message: AssistantMessage
    logprobs: ChatLogprobs | None = None


class DeltaChoice(Choice, frozen=True, kw_only=True):
    """A piece of a choice."""

    delta: Delta
    logprobs: ChatLogprobs | None = None


class ChatCompletion(Envelope, frozen=True, kw_only=True):
    """A whole reply."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: Sequence[MessageChoice]
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class ChatCompletionChunk(Envelope, frozen=True, kw_only=True):
    """A chunk."""

    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: Sequence[DeltaChoice]


class ChatReply(EnvelopeReply):
    """The reply."""

    id_prefix = "chatcmpl-"
    whole = ChatCompletion
    chunk = ChatCompletionChunk

    def __init__(self, model: str, job: ChatJob, vocabulary: Vocabulary, *, include_usage: bool) -> None:
        super().__init__(model, job, vocabulary, include_usage=include_usage)
        self._chat = job
        self._turns: defaultdict[int, TurnReader] = defaultdict(job.new_turn)
        """One for each choice that has begun."""

    def body(self, outputs: Sequence[RequestOutput]) -> Envelope:
        envelope = super().body(outputs)
        top = self._job.prompt_logprobs
        if top is None:
            return envelope
        shown = prompt_logprobs(outputs[0].prompt_logprobs or (), top, self._vocabulary)
        return msgspec.structs.replace(envelope, prompt_logprobs=shown)

    def whole_choice(self, index: int, output: RequestOutput) -> Choice:
        reader = self._turns[index]
        turn = reader.push(output.text, last=True)
        message = AssistantMessage(
            role=self._chat.role,
            content=None if turn.calls and not turn.content else turn.content,
            reasoning_content=turn.reasoning or UNSET,
            tool_calls=whole_calls(turn.calls) or UNSET,
        )
        reason = self._chat.finish_reason(output.finish_reason, reader)
        return MessageChoice(index=index, message=message, logprobs=self._logprobs(output), finish_reason=reason)

    def pieces(self, index: int, output: RequestOutput) -> Iterable[Choice]:
        if index not in self._turns:
            yield DeltaChoice(index=index, delta=Delta(role=self._chat.role, content=""), finish_reason=None)
        reader = self._turns[index]
        deltas = _deltas(reader.push(output.text, last=output.finish_reason is not None))
        if output.logprobs and not deltas:
            deltas = [Delta(content="")]
        logprobs = self._logprobs(output)
        for delta in deltas:
            yield DeltaChoice(index=index, delta=delta, logprobs=logprobs, finish_reason=None)
            logprobs = None
        if output.finish_reason:
            reason = self._chat.finish_reason(output.finish_reason, reader)
            yield DeltaChoice(index=index, delta=Delta(), finish_reason=reason)

    def _logprobs(self, output: RequestOutput) -> ChatLogprobs | None:
        return chat_logprobs(output.logprobs or (), self._vocabulary) if self._shows_logprobs else None


def whole_calls(deltas: Iterable[CallDelta]) -> list[ToolCall]:
    """The calls that a turn's deltas make together."""
    calls: list[ToolCall] = []
    for delta in deltas:
        if delta.name is not None:
            calls.append(ToolCall(id=delta.id, function=FunctionCall(name=delta.name, arguments="")))
        calls[-1].function.arguments += delta.arguments
    return calls


def _deltas(turn: TurnDelta) -> list[Delta]:
    """One for each thing that is new."""
    deltas = [Delta(reasoning_content=turn.reasoning)] if turn.reasoning else []
    if turn.content:
        deltas.append(Delta(content=turn.content))
    return deltas + [Delta(tool_calls=[_call_delta(call)]) for call in turn.calls]


def _call_delta(call: CallDelta) -> ToolCallDelta:
    if call.name is None:
        return ToolCallDelta(index=call.index, function=FunctionDelta(arguments=call.arguments))
    function = FunctionDelta(name=call.name, arguments=call.arguments)
    return ToolCallDelta(index=call.index, id=call.id or UNSET, type="function", function=function)
