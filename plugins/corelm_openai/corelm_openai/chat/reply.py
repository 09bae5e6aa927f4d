"""The reply of ``/v1/chat/completions``."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from corelm.api import RequestOutput
from corelm_openai.chat.body import ChatJob
from corelm_openai.chat.turns import TurnReader
from corelm_openai.generation.envelopes import Choice, Envelope, EnvelopeReply
from corelm_openai.generation.logprobs import ChatLogprobs, PromptLogprobs, chat_logprobs, prompt_logprobs
from corelm_openai.generation.vocabulary import Vocabulary


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What the model says."""

    role: str = "assistant"
    content: str
    refusal: None = None


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk adds to the message."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


class MessageChoice(Choice, frozen=True, kw_only=True):
    """A whole choice."""

    message: AssistantMessage


class DeltaChoice(Choice, frozen=True, kw_only=True):
    """A piece of a choice."""

    delta: Delta


class PromptEnvelope(Envelope, frozen=True, kw_only=True):
    """A whole reply that shows the prompt's log-probabilities as well."""

    prompt_logprobs: PromptLogprobs


class ChatReply(EnvelopeReply):
    """The reply."""

    id_prefix = "chatcmpl-"
    object_name = "chat.completion"
    chunk_name = "chat.completion.chunk"

    def __init__(self, model: str, job: ChatJob, vocabulary: Vocabulary, *, include_usage: bool) -> None:
        super().__init__(model, job, vocabulary, include_usage=include_usage)
        self._turns: defaultdict[int, TurnReader] = defaultdict(job.new_turn)
        """One for each choice that has begun."""

    def body(self, outputs: Sequence[RequestOutput]) -> Envelope:
        envelope = super().body(outputs)
        top = self._job.prompt_logprobs
        if top is None:
            return envelope
        shown = prompt_logprobs(outputs[0].prompt_logprobs or (), top, self._vocabulary)
        return PromptEnvelope(**msgspec.structs.asdict(envelope), prompt_logprobs=shown)

    def whole_choice(self, index: int, output: RequestOutput) -> Choice:
        turn = self._turns[index].push(output.text, last=True)
        message = AssistantMessage(content=turn.content)
        logprobs = self._logprobs(output)
        return MessageChoice(index=index, message=message, logprobs=logprobs, finish_reason=output.finish_reason)

    def pieces(self, index: int, output: RequestOutput) -> Iterable[Choice]:
        if index not in self._turns:
            yield DeltaChoice(index=index, delta=Delta(role="assistant", content=""), finish_reason=None)
        turn = self._turns[index].push(output.text, last=output.finish_reason is not None)
        if turn.content or output.logprobs:
            delta = Delta(content=turn.content)
            yield DeltaChoice(index=index, delta=delta, logprobs=self._logprobs(output), finish_reason=None)
        if output.finish_reason:
            yield DeltaChoice(index=index, delta=Delta(), finish_reason=output.finish_reason)

    def _logprobs(self, output: RequestOutput) -> ChatLogprobs | None:
        return chat_logprobs(output.logprobs or (), self._vocabulary) if self._shows_logprobs else None
