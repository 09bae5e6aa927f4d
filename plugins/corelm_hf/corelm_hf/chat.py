"""From a conversation to tokens, so that no text of a user's becomes a control token."""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer

from corelm.api import Chat, InvalidRequestError
from corelm_hf.parts import TokenizerParts
from corelm_hf.plain import BREAK, END, Plain
from corelm_hf.template import ChatTemplate

_OWN_NAMES = frozenset({"messages", "tools", "add_generation_prompt", "chat_template", "tokenize"})


class ChatRenderer:
    """Renders conversations with one model's template.

    Strings from the request get a `BREAK` character inside every text of a control token before the template sees
    them. What the template prints is encoded by a copy of the tokenizer that knows the break as a token, which
    keeps the halves apart; then the breaks are dropped. Everything else is encoded as usual.

    What a template itself glues together, such as ``'<|' + message.role + '|>'``, is the template's text: whoever
    builds the `Chat` decides which roles there are.
    """

    def __init__(self, parts: TokenizerParts, special_tokens: Mapping[str, int], template: ChatTemplate) -> None:
        self._template = template
        self._names = parts.token_names
        self._plain = Plain(special_tokens)
        self._reserved = _OWN_NAMES | self._names.keys() | template.reserved
        self._encoder = Tokenizer.from_str(parts.backend.to_str())
        _match_exactly(self._encoder)
        self._encoder.add_tokens([AddedToken(BREAK, normalized=False, special=True)])
        self._break_id = self._encoder.token_to_id(BREAK)

    def token_ids(self, chat: Chat) -> list[int]:
        """Token ids of `chat`; nothing, such as BOS, is added to what the template prints.

        Raises `InvalidRequestError` if the template refuses the messages or knows no tools, and if the request is not
        one it may make.
        """
        text = self._template.render(self._variables(chat))
        if chat.continue_final_message:
            text = _without_ending(text)
        encoding = self._encoder.encode_batch_fast([text], add_special_tokens=False)[0]
        return [token for token in encoding.ids if token != self._break_id]

    def _variables(self, chat: Chat) -> Mapping[str, Any]:
        for name in chat.template_kwargs:
            if name in self._reserved:
                raise InvalidRequestError(f"{name} cannot be set for the chat template", param="chat_template_kwargs")
        if chat.tools and not self._template.knows_tools:
            raise InvalidRequestError("this model's chat template knows no tools", param="tools")
        messages = [self._message(message) for message in chat.messages]
        if chat.continue_final_message:
            _mark_end(messages, chat.add_generation_prompt)
        return {
            **self._plain(chat.template_kwargs, "chat_template_kwargs"),
            **self._names,
            "messages": messages,
            "tools": self._plain(chat.tools, "tools") or None,
            "add_generation_prompt": chat.add_generation_prompt,
        }

    def _message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """A message for the template: plain, without the keys that are None, in a role that the template knows."""
        plain: dict[str, Any] = self._plain(message, "messages")
        if plain.get("role") == "developer" and "developer" not in self._template.source:
            plain["role"] = "system"
        told = {key: value for key, value in plain.items() if value is not None}
        # Most templates join content to other text; the others ask whether there is any.
        return told if "content" in told else {**told, "content": None if self._template.asks_for_none else ""}


def _mark_end(messages: Sequence[dict[str, Any]], add_generation_prompt: bool) -> None:
    """Put `END` where the last message ends; and a space, by which one sees whether the template trims messages."""
    content = messages[-1]["content"] if messages else None
    if add_generation_prompt or not isinstance(content, str):
        why = "add_generation_prompt" if add_generation_prompt else "a last message without text"
        raise InvalidRequestError(
            f"continue_final_message does not go together with {why}", param="continue_final_message"
        )
    messages[-1]["content"] = f"{content}{END} "


def _without_ending(text: str) -> str:
    """What the template printed up to the end of the last message."""
    before, mark, after = text.rpartition(END)
    if not mark:
        raise InvalidRequestError(
            "the chat template leaves out the last message, so that it cannot be continued",
            param="continue_final_message",
        )
    return before if after.startswith(" ") else before.rstrip()


def _match_exactly(encoder: Tokenizer) -> None:
    """Let control tokens match the raw text only: a normalizer could turn other characters into a token's text."""
    added = encoder.get_added_tokens_decoder().values()
    encoder.add_tokens(
        [
            AddedToken(
                token.content,
                single_word=token.single_word,
                lstrip=token.lstrip,
                rstrip=token.rstrip,
                normalized=False,
                special=True,
            )
            for token in added
            if token.special and token.normalized
        ]
    )
