"""From a prompt to token ids, or a clear refusal."""

from collections.abc import Sequence
from typing import Any

from corelm.contracts.frontend import Prompt
from corelm.contracts.tokenizer import Chat, Tokenizer
from corelm.errors import InvalidRequestError
from corelm.sampling import SamplingParams

SLACK_TOKENS = 64
"""Tokens before the part of a prompt that is kept, so that where the text was cut does not show in it."""


class PromptReader:
    """Tokenises and checks prompts. Thread-safe."""

    def __init__(self, tokenizer: Tokenizer, *, max_model_len: int, kv_tokens: int, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self.max_len = min(max_model_len, kv_tokens)
        """Longest prompt and output together, in tokens."""
        self._limit_text = (
            f"the model's context holds {max_model_len} tokens"
            if max_model_len <= kv_tokens
            else f"the KV cache holds {kv_tokens} tokens"
        )

    def read(self, prompt: Prompt, params: SamplingParams) -> tuple[list[int], int]:
        """Token ids, at least one, and how many output tokens there is room for."""
        param = "messages" if isinstance(prompt, Chat) else "prompt"
        keep = self._keep(params)
        # A copy: the sequence will grow, and what a tokenizer returns is its own.
        token_ids = list(self._tokens(prompt, param, keep))
        if keep is not None:
            token_ids = token_ids[-keep:]
        if not token_ids:
            raise InvalidRequestError("the prompt is empty: it has no tokens", param=param)
        # Tokenizers can have added tokens that the model does not know.
        self.check_vocabulary(token_ids, param)
        return token_ids, self._room(len(token_ids), params, param)

    def token_ids(self, prompt: Prompt, *, add_special_tokens: bool) -> list[int]:
        """What a prompt consists of, if it is no longer than the context."""
        param = "messages" if isinstance(prompt, Chat) else "prompt"
        if isinstance(prompt, str):
            self._check_characters(len(prompt), param)
            token_ids = list(self._tokenizer.encode(prompt, add_special_tokens=add_special_tokens))
        else:
            token_ids = list(self._tokens(prompt, param, None))
        if len(token_ids) > self.max_len:
            raise self._too_long(len(token_ids), param)
        return token_ids

    def text(self, token_ids: Sequence[int]) -> str:
        """What tokens, special ones included, stand for together: no more than the context holds."""
        ids = _integers(token_ids)
        if len(ids) > self.max_len:
            raise self._too_long(len(ids), "tokens")
        self.check_vocabulary(ids, "tokens")
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def check_vocabulary(self, token_ids: Sequence[int], param: str) -> None:
        """Raise `InvalidRequestError` if the model does not know one of `token_ids`."""
        if token_ids and not 0 <= min(token_ids) <= max(token_ids) < self._vocab_size:
            token = next(token for token in token_ids if not 0 <= token < self._vocab_size)
            raise InvalidRequestError(
                f"{param}: token id {token} is outside the vocabulary (0 to {self._vocab_size - 1})", param=param
            )

    def _keep(self, params: SamplingParams) -> int | None:
        """Tokens of the prompt to keep; None for all."""
        if params.truncate_prompt_tokens != -1:
            return params.truncate_prompt_tokens
        wanted = max(params.min_tokens, 1) if params.max_tokens is None else params.max_tokens
        return max(self.max_len - wanted, 1)

    def _tokens(self, prompt: Prompt, param: str, keep: int | None) -> list[int]:
        if isinstance(prompt, str):
            if keep is None:
                self._check_characters(len(prompt), param)
            else:
                prompt = prompt[-(keep + SLACK_TOKENS) * self._tokenizer.max_chars_per_token :]
            return self._tokenizer.encode(prompt)
        if isinstance(prompt, Chat):
            self._check_characters(sum(map(_characters, (*prompt.messages, *prompt.tools))), param)
            return self._tokenizer.render_chat(prompt)
        if keep is None and isinstance(prompt, Sequence) and len(prompt) > self.max_len:
            raise self._too_long(len(prompt), param)
        return _integers(prompt)

    def _check_characters(self, characters: int, param: str) -> None:
        """Refuse what cannot fit before spending time on encoding it."""
        if characters > self.max_len * self._tokenizer.max_chars_per_token:
            raise InvalidRequestError(
                f"{self._limit_text}, and a prompt of {characters} characters has more",
                param=param,
                code="context_length_exceeded",
            )

    def _room(self, prompt_len: int, params: SamplingParams, param: str) -> int:
        room = self.max_len - prompt_len
        if room < 1 and not (room == 0 and params.max_tokens == 0):
            raise self._too_long(prompt_len, param)
        wanted, name = max((params.max_tokens or 0, "max_tokens"), (params.min_tokens, "min_tokens"))
        if wanted > room:
            message = f"{self._limit_text}; the prompt has {prompt_len} and {name} asks for {wanted} more"
            raise InvalidRequestError(message, param=name, code="context_length_exceeded")
        return room

    def _too_long(self, prompt_len: int, param: str) -> InvalidRequestError:
        full = " and leaves no room for an answer" if prompt_len == self.max_len else ""
        message = f"{self._limit_text}; the prompt has {prompt_len}{full}"
        return InvalidRequestError(message, param=param, code="context_length_exceeded")


def _integers(prompt: Any) -> list[int]:
    if not isinstance(prompt, Sequence) or isinstance(prompt, bytes | bytearray):
        raise InvalidRequestError(f"a prompt cannot be {type(prompt).__name__}", param="prompt")
    for token in prompt:
        if isinstance(token, bool) or not isinstance(token, int):
            raise InvalidRequestError(
                f"a prompt of token ids must hold integers, not {type(token).__name__}", param="prompt"
            )
    return list(prompt)


def _characters(value: Any) -> int:
    """Characters of all strings in a message."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_characters, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_characters, value))
    return 0
