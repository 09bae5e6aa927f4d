"""From a prompt to a request that can run, or a clear refusal. Nothing is queued here."""

import secrets
from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec

from corelm.contracts.frontend import Prompt
from corelm.contracts.tokenizer import Chat, Tokenizer
from corelm.engine.request import Request
from corelm.errors import InvalidRequestError
from corelm.sampling import SamplingParams
from corelm.scheduler.sequence import Sequence as ScheduledSequence


class Intake:
    """Tokenises and checks requests. Thread-safe; called off the event loop."""

    def __init__(self, tokenizer: Tokenizer, *, max_model_len: int, kv_tokens: int, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._ids = count(1)
        self.max_len = min(max_model_len, kv_tokens)
        """Longest prompt and output together, in tokens."""
        self._limit_text = (
            f"the model's context holds {max_model_len} tokens"
            if max_model_len <= kv_tokens
            else f"the KV cache holds {kv_tokens} tokens"
        )

    def prepare(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        request_id: str,
        arrival: float,
        priority: int = 0,
        tenant: str | None = None,
    ) -> Request:
        """A request ready to be queued. Raises `InvalidRequestError`."""
        if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) >= 2**31:
            raise InvalidRequestError("priority must be a 32-bit integer", param="priority")
        param = "messages" if isinstance(prompt, Chat) else "prompt"
        token_ids = self._tokens(prompt, param)
        room = self._room(len(token_ids), params, param)
        if params.seed is None:
            params = msgspec.structs.replace(params, seed=secrets.randbits(63))
        sequence = ScheduledSequence(
            seq_id=next(self._ids),
            request_id=request_id,
            prompt=token_ids,
            max_tokens=room if params.max_tokens is None else params.max_tokens,
            sampling=params,
            arrival=arrival,
            priority=priority,
            tenant=tenant,
        )
        decoder = self._tokenizer.decoder(skip_special_tokens=params.skip_special_tokens)
        return Request(sequence, decoder, params.stop, self._stop_tokens(params))

    def _tokens(self, prompt: Prompt, param: str) -> list[int]:
        if isinstance(prompt, str):
            self._check_characters(len(prompt), param)
            token_ids = self._tokenizer.encode(prompt)
        elif isinstance(prompt, Chat):
            self._check_characters(sum(_characters(message) for message in prompt.messages), param)
            token_ids = self._tokenizer.render_chat(prompt)
        else:
            token_ids = _integers(prompt)
        if not token_ids:
            raise InvalidRequestError("the prompt is empty: it has no tokens", param=param)
        # Tokenizers can have added tokens that the model does not know.
        if not 0 <= min(token_ids) <= max(token_ids) < self._vocab_size:
            token = next(token for token in token_ids if not 0 <= token < self._vocab_size)
            raise InvalidRequestError(
                f"token id {token} is outside the vocabulary (0 to {self._vocab_size - 1})", param=param
            )
        return token_ids

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
        if room < 1:
            message = f"{self._limit_text}; the prompt has {prompt_len} and leaves no room for an answer"
            raise InvalidRequestError(message, param=param, code="context_length_exceeded")
        if params.max_tokens is not None and params.max_tokens > room:
            message = (
                f"{self._limit_text}; the prompt has {prompt_len} and max_tokens asks for {params.max_tokens} more"
            )
            raise InvalidRequestError(message, param="max_tokens", code="context_length_exceeded")
        return room

    def _stop_tokens(self, params: SamplingParams) -> dict[int, str | int]:
        stop: dict[int, str | int] = {token: token for token in params.stop_token_ids}
        if not params.ignore_eos:
            stop |= {token: token for token in self._tokenizer.eos_token_ids}
        # Special tokens do not show in the text, so a stop string that is one is matched as a token.
        special = self._tokenizer.special_tokens
        return stop | {special[text]: text for text in params.stop if text in special}


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
