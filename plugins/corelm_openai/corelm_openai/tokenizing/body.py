"""The requests of ``/tokenize`` and ``/detokenize``, in vLLM's shape."""

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from corelm.api import InvalidRequestError, Prompt
from corelm_openai.chat.body import ChatBody, TemplateKwargs, Tools
from corelm_openai.chat.messages import Messages
from corelm_openai.service import Service


class TokenizeBody(msgspec.Struct, kw_only=True):
    """A text or a conversation. The fields of a conversation are those of chat completions."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    tools: Tools | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: TemplateKwargs = Raw()
    chat_template: Raw = Raw()
    add_special_tokens: bool | None = None
    """Whether a text begins with what the model wants there, such as BOS. A conversation is as its template says."""
    return_token_strs: bool | None = None

    def what(self, service: Service, headers: Mapping[str, str]) -> Prompt:
        """What is to be tokenised. Raises `InvalidRequestError`."""
        if (self.prompt is None) == (self.messages is None):
            raise InvalidRequestError("either prompt or messages must be given, and not both", param="prompt")
        if self.prompt is not None:
            return self.prompt
        if self.add_special_tokens:
            raise InvalidRequestError(
                "add_special_tokens is only allowed with prompt: a chat template puts them where they belong",
                param="add_special_tokens",
            )
        chat = ChatBody(
            model=self.model or "",
            messages=self.messages or [],
            tools=self.tools,
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
            chat_template_kwargs=self.chat_template_kwargs,
            chat_template=self.chat_template,
        )
        return chat.job(service, headers).prompts[0]


class DetokenizeBody(msgspec.Struct, kw_only=True):
    """Tokens."""

    model: str | None = None
    tokens: list[int]
