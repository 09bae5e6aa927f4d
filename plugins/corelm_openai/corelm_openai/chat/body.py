"""The request of ``/v1/chat/completions``."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Raw

from corelm.api import Chat, EngineClient, InvalidRequestError, Prompt
from corelm_openai.chat.messages import Messages
from corelm_openai.chat.prompt import conversation, template_variables
from corelm_openai.chat.turns import TurnReader, Turns
from corelm_openai.generation.body import GenerationBody, TopCount
from corelm_openai.generation.choices import Job
from corelm_openai.http.decoding import decode_field
from corelm_openai.service import Service
from corelm_openai.tools.forcing import with_calls
from corelm_openai.tools.offer import Offer, offer
from corelm_openai.tools.wire import NamedTool, Tool, WhetherToCall

MAX_TOOLS = 1000
MAX_TEMPLATE_KWARGS_BYTES = 2**14
PROMPT_END_TOKENS = 16
"""Enough to see whether the template has begun the model's thoughts."""

Effort = Annotated[str, Meta(max_length=64)]
_kwargs_decoder = msgspec.json.Decoder(dict[str, Any] | None)

Tools = Annotated[list[Tool], Meta(max_length=MAX_TOOLS)]
TemplateKwargs = Annotated[Raw, _kwargs_decoder]


class ChatJob(Job, frozen=True, kw_only=True):
    """A job whose outputs are turns of an assistant."""

    new_turn: Callable[[], TurnReader]
    """Makes the reader of one choice's text, once `engine_prompts` was called."""
    asks_prompt_end: Turns | None = None
    """Must be told how the prompt ends."""
    role: str = "assistant"
    """Whose turns they are."""
    named_call: bool = False
    """Whether the request named the function to call."""

    def finish_reason(self, reason: str | None, turn: TurnReader) -> str | None:
        """What OpenAI calls it: a turn that ends with calls has a reason of its own, unless a call was asked for by
        name."""
        return "tool_calls" if reason == "stop" and turn.called and not self.named_call else reason

    async def engine_prompts(self, engine: EngineClient) -> Sequence[Prompt]:
        if self.asks_prompt_end is None:
            return self.prompts
        (chat,) = self.prompts
        token_ids = await engine.tokenize(chat)
        self.asks_prompt_end.prompt_end = await engine.detokenize(token_ids[-PROMPT_END_TOKENS:])
        return [token_ids]


class ChatBody(GenerationBody, kw_only=True):
    """The request."""

    unsupported_here: ClassVar[tuple[str, ...]] = ("best_of", "echo")

    messages: Messages
    max_completion_tokens: int | None = None
    """The newer name of ``max_tokens``; it wins if both are given."""
    logprobs: bool | None = None
    top_logprobs: TopCount | None = None
    tools: Tools | None = None
    tool_choice: WhetherToCall | NamedTool | None = None
    """``none``, ``auto``, ``required`` or the one to call."""
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = None
    """A variable for the template, as far as that knows it; ``none`` also switches thinking off."""
    include_reasoning: bool | None = None
    """Whether the reply shows what the model thought."""
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    """Go on with the last message instead of beginning another."""
    chat_template_kwargs: TemplateKwargs = Raw()
    best_of: Raw = Raw()
    echo: Raw = Raw()

    def job(self, service: Service, headers: Mapping[str, str]) -> ChatJob:
        """The engine request this asks for. Raises `InvalidRequestError`."""
        newer = self.max_completion_tokens is not None
        formats = service.formats
        offered = offer(self.tools, self.tool_choice, self.parallel_tool_calls)
        form = self.form()
        if offered is not None:
            form = with_calls(form, offered, formats.tools, formats.tokens)
        job = self.make_job(
            [self._chat(offered, service)],
            service.settings,
            headers,
            names={"max_tokens": "max_completion_tokens"} if newer else {},
            max_tokens=self.max_completion_tokens if newer else self.max_tokens,
            logprobs=self._logprobs(),
            form=form,
        )
        params = job.params
        if (offered and formats.tools.special_tokens) or (formats.reasoning and formats.reasoning.special_tokens):
            params = msgspec.structs.replace(params, skip_special_tokens=False)
        turns = self._turns(offered, service)
        # An output that must have some form begins with it: thoughts that the prompt began end there.
        opened = formats.reasoning is not None and form is None and self.truncate_prompt_tokens is None
        return ChatJob(
            **{**msgspec.structs.asdict(job), "params": params},
            new_turn=turns.new,
            asks_prompt_end=turns if opened else None,
            role=service.settings.response_role if self._begins_a_turn else self.messages[-1].role,
            named_call=offered is not None and offered.named,
        )

    def _logprobs(self) -> int | None:
        if self.logprobs:
            return self.top_logprobs or 0
        if self.top_logprobs:
            raise InvalidRequestError("top_logprobs is only allowed when logprobs is true", param="top_logprobs")
        return None

    def _turns(self, offered: Offer | None, service: Service) -> Turns:
        return Turns(
            reasoning=service.formats.reasoning,
            shows_reasoning=self.include_reasoning is not False,
            tools=service.formats.tools if offered else None,
            names={function.name for function in offered.functions} if offered else set(),
            parallel=offered is not None and offered.parallel,
        )

    @property
    def _begins_a_turn(self) -> bool:
        return not self.continue_final_message if self.add_generation_prompt is None else self.add_generation_prompt

    def _chat(self, offered: Offer | None, service: Service) -> Chat:
        if self.continue_final_message and self._begins_a_turn:
            raise InvalidRequestError(
                "continue_final_message does not go together with add_generation_prompt",
                param="continue_final_message",
            )
        return Chat(
            **conversation(self.messages, offered, service.formats),
            add_generation_prompt=self._begins_a_turn,
            continue_final_message=bool(self.continue_final_message),
            template_kwargs=template_variables(self.reasoning_effort, self._template_kwargs()),
        )

    def _template_kwargs(self) -> dict[str, Any]:
        name = "chat_template_kwargs"
        values = decode_field(self.chat_template_kwargs, _kwargs_decoder, name, MAX_TEMPLATE_KWARGS_BYTES) or {}
        if "chat_template" in values:
            raise InvalidRequestError("chat_template cannot be given in a request", param=f"{name}.chat_template")
        return values
