"""Prompts as part of the reply."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from corelm.api import Prompt, TokenLogprobs
from corelm_openai.generation.logprobs import Position
from corelm_openai.generation.vocabulary import Token, Vocabulary, token


class Echo:
    """The prompts of a reply whose choices begin with them: strings or token ids."""

    def __init__(self, prompts: Sequence[Prompt], vocabulary: Vocabulary) -> None:
        self._prompts = prompts
        self._vocabulary = vocabulary
        self._texts: list[str] = []

    async def prepare(self) -> None:
        """Get to know the tokens of the prompts. To be done first."""
        if not self._texts:
            await self._vocabulary.learn(chain(*map(_ids, self._prompts)))
            self._texts = [self._text(prompt) for prompt in self._prompts]

    def text(self, number: int) -> str:
        """A prompt as text."""
        return self._texts[number]

    def positions(self, number: int, entries: Iterable[TokenLogprobs | None]) -> Iterator[Position]:
        """The tokens of a prompt, from its log-probabilities."""
        rest = [(self._vocabulary[entry.token_id], entry) for entry in entries if entry is not None]
        yield self._first_token(number, b"".join(raw for (raw, _), _ in rest)), None
        yield from rest

    def _first_token(self, number: int, rest: bytes) -> Token:
        """The first token of a prompt, which its log-probabilities do not name, from the bytes of the others.

        Nothing is left of a text for a token that the tokenizer put before it.
        """
        for token_id in _ids(self._prompts[number]):
            return self._vocabulary[token_id]
        text = self._texts[number].encode()
        return token(text.removesuffix(rest) if text.endswith(rest) else b"")

    def _text(self, prompt: Prompt) -> str:
        if isinstance(prompt, str):
            return prompt
        return b"".join(self._vocabulary[token_id].raw for token_id in _ids(prompt)).decode(errors="replace")


def _ids(prompt: Prompt) -> Sequence[int]:
    return prompt if isinstance(prompt, list) else ()
