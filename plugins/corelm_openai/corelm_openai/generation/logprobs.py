"""Log-probabilities in OpenAI's two shapes, and in vLLM's for prompts."""

import codecs
from collections.abc import Iterable, Iterator

import msgspec

from corelm.api import RequestOutput, TokenLogprobs
from corelm_openai.generation.vocabulary import Token, Vocabulary

Position = tuple[Token, TokenLogprobs | None]
"""A token and its log-probability, which the first of a prompt has not."""


def named_tokens(outputs: Iterable[RequestOutput]) -> Iterator[int]:
    """Every token that the log-probabilities of these outputs name."""
    for output in outputs:
        for entry in (*(output.prompt_logprobs or ()), *(output.logprobs or ())):
            if entry is not None:
                yield entry.token_id
                yield from entry.top_ids


class TopLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """A token that might have come."""

    token: str
    logprob: float
    bytes: list[int]


class ContentLogprob(TopLogprob, frozen=True, kw_only=True):
    """A token that came."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of ``/v1/chat/completions``."""

    content: list[ContentLogprob]
    refusal: None = None


def chat_logprobs(entries: Iterable[TokenLogprobs], vocabulary: Vocabulary) -> ChatLogprobs:
    """One entry for each token."""
    return ChatLogprobs(content=[_content(entry, vocabulary) for entry in entries])


def _content(entry: TokenLogprobs, vocabulary: Vocabulary) -> ContentLogprob:
    raw, text = vocabulary[entry.token_id]
    top = [
        TopLogprob(token=vocabulary[token_id].text, logprob=logprob, bytes=list(vocabulary[token_id].raw))
        for token_id, logprob in zip(entry.top_ids, entry.top_logprobs, strict=True)
    ]
    return ContentLogprob(token=text, logprob=entry.logprob, bytes=list(raw), top_logprobs=top)


class TextLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of ``/v1/completions``: four lists with an item for each token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]
    """Characters that the tokens before it stand for."""


class TextLogprobsWriter:
    """Writes the log-probabilities of one choice, piece by piece."""

    def __init__(self, vocabulary: Vocabulary, top: int) -> None:
        self._vocabulary = vocabulary
        self._top = top
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._characters = 0

    def write(self, positions: Iterable[Position]) -> TextLogprobs:
        """The next tokens."""
        piece = TextLogprobs(tokens=[], token_logprobs=[], top_logprobs=[], text_offset=[])
        for (raw, text), entry in positions:
            piece.tokens.append(text)
            piece.token_logprobs.append(None if entry is None else entry.logprob)
            piece.top_logprobs.append(None if entry is None else self._alternatives(text, entry))
            piece.text_offset.append(self._characters)
            self._characters += len(self._decoder.decode(raw))
        return piece

    def _alternatives(self, text: str, entry: TokenLogprobs) -> dict[str, float]:
        """The most probable tokens and the one that came."""
        found: dict[str, float] = {}
        for token_id, logprob in zip(entry.top_ids[: self._top], entry.top_logprobs, strict=False):
            found.setdefault(self._vocabulary[token_id].text, logprob)
        found.setdefault(text, entry.logprob)
        return found


class PromptLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """A token of the prompt, or one that might have stood there."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[int, PromptLogprob] | None]


def prompt_logprobs(entries: Iterable[TokenLogprobs | None], top: int, vocabulary: Vocabulary) -> PromptLogprobs:
    """By token id, for each token of the prompt: first itself, then the most probable ones."""
    return [None if entry is None else _prompt_position(entry, top, vocabulary) for entry in entries]


def _prompt_position(entry: TokenLogprobs, top: int, vocabulary: Vocabulary) -> dict[int, PromptLogprob]:
    ranked = enumerate(zip(entry.top_ids[:top], entry.top_logprobs, strict=False), start=1)
    found = [(entry.token_id, entry.logprob, entry.rank), *((*item, rank) for rank, item in ranked)]
    return {
        token_id: PromptLogprob(logprob=logprob, rank=rank, decoded_token=vocabulary[token_id].text)
        for token_id, logprob, rank in found
    }
