"""From what a client wants to a request that can run, or a clear refusal. Nothing is queued here."""

import secrets
from collections.abc import Iterator, Mapping, Set
from functools import partial
from itertools import count
from typing import Any

import msgspec

from corelm.contracts.frontend import Prompt, RequestOptions
from corelm.contracts.logits import LogitsProcessor
from corelm.contracts.tokenizer import Tokenizer
from corelm.engine.beam import BeamRequest, num_candidates
from corelm.engine.choice import Choice
from corelm.engine.embedding import EmbeddingRequest
from corelm.engine.grammars import CompiledGrammar, Grammars
from corelm.engine.prompts import PromptReader
from corelm.engine.request import BestOfRequest, GroupRequest, Request, SingleRequest
from corelm.engine.stopping import stop_strings
from corelm.errors import InvalidRequestError
from corelm.sampling import MAX_LOGPROBS, SEED_RANGE, SamplingParams
from corelm.scheduler.sequence import Sequence

CAPABILITY_OF = {
    "logprobs": "logprobs",
    "prompt_logprobs": "logprobs",
    "best_of": "logprobs",
    "beam": "logprobs",
    "presence_penalty": "penalties",
    "frequency_penalty": "penalties",
    "repetition_penalty": "penalties",
    "logit_bias": "token_masks",
    "allowed_token_ids": "token_masks",
    "bad_words": "token_masks",
    "logits_processors": "logits_processors",
    "min_tokens": "token_masks",
    "structured_output": "grammar",
}
"""What an executor must be capable of for a parameter."""


class Intake:
    """Checks requests and puts them together. Thread-safe; called off the event loop."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompts: PromptReader,
        *,
        capabilities: frozenset[str],
        logits_processors: Mapping[str, LogitsProcessor] = {},
        grammars: Grammars | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.max_len = prompts.max_len
        self.prompts = prompts
        self._grammars = grammars
        self._logits_processors = logits_processors
        self._embeds = "embeddings" in capabilities
        self._missing = {name: needed for name, needed in CAPABILITY_OF.items() if needed not in capabilities}
        self._ids = count(1)

    def grammars(self) -> Grammars:
        """What compiles `SamplingParams.structured_output`. Raises `InvalidRequestError` if it is not supported."""
        if "structured_output" in self._missing:
            raise self._lacking("structured_output")
        if self._grammars is None:
            message = "structured_output needs a grammar compiler, and there is none: install corelm-llguidance"
            raise InvalidRequestError(message, param="structured_output")
        return self._grammars

    def prepare(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        request_id: str,
        arrival: float,
        options: RequestOptions = RequestOptions(),
        grammar: CompiledGrammar | None = None,
    ) -> Request:
        """A request ready to be queued; `grammar` is that of its structured output. Raises `InvalidRequestError`."""
        stop_tokens = self._stop_tokens(params)
        self._check(params, stop_tokens.keys())
        token_ids, room = self.prompts.read(prompt, params)
        first = Sequence(
            seq_id=next(self._ids),
            request_id=request_id,
            token_ids=token_ids,
            max_tokens=room if params.max_tokens is None else params.max_tokens,
            sampling=_for_executor(params, len(stop_tokens)),
            arrival=arrival,
            options=options,
            bad_words=tuple(self._bad_words(params)),
            end_token_ids=tuple(stop_tokens) if params.min_tokens else (),
            lockstep=params.beam is not None,
            allowed=None if grammar is None else grammar.first_mask,
        )
        return self._request(request_id, params, first, stop_tokens, grammar)

    def prepare_embedding(
        self,
        prompt: Prompt,
        truncate_prompt_tokens: int | None,
        *,
        request_id: str,
        arrival: float,
        options: RequestOptions = RequestOptions(),
    ) -> Request:
        """A request for an embedding, ready to be queued. Raises `InvalidRequestError`."""
        if not self._embeds:
            raise InvalidRequestError("embeddings are not supported: the executor lacks the capability 'embeddings'")
        params = SamplingParams(max_tokens=0, seed=0, truncate_prompt_tokens=truncate_prompt_tokens)
        token_ids, _ = self.prompts.read(prompt, params)
        sequence = Sequence(
            seq_id=next(self._ids),
            request_id=request_id,
            token_ids=token_ids,
            max_tokens=0,
            sampling=params,
            arrival=arrival,
            options=options,
            embed=True,
        )
        return EmbeddingRequest(request_id, sequence)

    def _request(
        self,
        request_id: str,
        params: SamplingParams,
        first: Sequence,
        stop_tokens: Mapping[int, str | int],
        grammar: CompiledGrammar | None,
    ) -> Request:
        stop = stop_strings(params.stop)

        def choose(index: int, sequence: Sequence) -> Choice:
            decoder = self.tokenizer.decoder(
                skip_special_tokens=params.skip_special_tokens,
                spaces_between_special_tokens=params.spaces_between_special_tokens,
            )
            matcher = None if grammar is None else grammar.grammar.matcher()
            return Choice(request_id, index, sequence, decoder, params, stop, stop_tokens, matcher)

        branch = partial(self._branch, request_id)
        if params.beam is not None:
            end_tokens = frozenset(stop_tokens)
            return BeamRequest(request_id, first, params.beam, params.n, end_tokens, branch, choose)
        size = params.num_sequences
        if size > params.n:
            return BestOfRequest(request_id, first, size, params.n, branch, choose)
        if size > 1:
            return GroupRequest(request_id, first, size, params.n, branch, choose)
        return SingleRequest(request_id, choose(0, first))

    def _branch(self, request_id: str, parent: Sequence, index: int, token_ids: list[int]) -> Sequence:
        seq_id = next(self._ids)
        return Sequence(
            seq_id=seq_id,
            request_id=f"{request_id}#{seq_id}",
            token_ids=token_ids,
            prompt_len=parent.prompt_len,
            max_tokens=parent.max_tokens,
            sampling=_branch_sampling(parent.sampling, index),
            arrival=parent.arrival,
            options=parent.options,
            bad_words=parent.bad_words,
            end_token_ids=parent.end_token_ids,
            lockstep=parent.lockstep,
            allowed=parent.allowed,
        )

    def _check(self, params: SamplingParams, stop_tokens: Set[int]) -> None:
        num_stop_tokens = len(stop_tokens)
        for name in self._missing:
            if getattr(params, name) != _DEFAULTS[name]:
                raise self._lacking(name)
        if params.min_tokens and params.allowed_token_ids is not None and set(params.allowed_token_ids) <= stop_tokens:
            raise InvalidRequestError(
                "min_tokens leaves nothing to sample: every one of allowed_token_ids ends the output",
                param="min_tokens",
            )
        self.prompts.check_vocabulary(params.stop_token_ids, "stop_token_ids")
        self.prompts.check_vocabulary(params.allowed_token_ids or (), "allowed_token_ids")
        self.prompts.check_vocabulary(list(params.logit_bias), "logit_bias")
        if params.beam is not None and num_candidates(params.beam.width, num_stop_tokens) > MAX_LOGPROBS:
            most = MAX_LOGPROBS // num_candidates(1, num_stop_tokens)
            raise InvalidRequestError(
                f"beam.width must be at most {most} with {num_stop_tokens} tokens that end the output",
                param="beam.width",
            )
        for name, argument in params.logits_processors.items():
            self._check_argument(name, argument)

    def _lacking(self, name: str) -> InvalidRequestError:
        message = f"{name} is not supported: the executor lacks the capability {self._missing[name]!r}"
        return InvalidRequestError(message, param=name)

    def _check_argument(self, name: str, argument: Any) -> None:
        if name not in self._logits_processors:
            selected = ", ".join(self._logits_processors) or "none"
            raise InvalidRequestError(
                f"no logits processor named {name!r:.100} is selected; selected: {selected}", param="logits_processors"
            )
        path = f"logits_processors.{name}"
        try:
            self._logits_processors[name].check(argument)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{path}: {error}", param=path, code=error.code) from error

    def _stop_tokens(self, params: SamplingParams) -> dict[int, str | int]:
        stop: dict[int, str | int] = {token: token for token in params.stop_token_ids}
        if not params.ignore_eos:
            stop |= {token: token for token in self.tokenizer.eos_token_ids}
        # Special tokens do not show in the text, so a stop string that is one is matched as a token.
        special = self.tokenizer.special_tokens
        return stop | {special[text]: text for text in params.stop if text in special}

    def _bad_words(self, params: SamplingParams) -> Iterator[tuple[int, ...]]:
        """The tokens of each bad word, within a text and at the beginning of a word."""
        for word in params.bad_words:
            variants = {tuple(self.tokenizer.encode(text, add_special_tokens=False)) for text in (word, f" {word}")}
            yield from sorted(variants - {()})


_DEFAULTS = {name: getattr(SamplingParams(), name) for name in CAPABILITY_OF}


def _for_executor(params: SamplingParams, num_stop_tokens: int) -> SamplingParams:
    """What the executor has to know of `params` to compute the first sequence."""
    changes: dict[str, object] = {}
    if params.seed is None:
        changes["seed"] = secrets.randbits(63)
    if params.beam is not None:
        logprobs = num_candidates(params.beam.width, num_stop_tokens)
        changes |= {"beam": None, "n": 1, "temperature": 0.0, "logprobs": logprobs}
    elif params.num_sequences > params.n and params.logprobs is None:
        changes["logprobs"] = 0
    return msgspec.structs.replace(params, **changes) if changes else params


def _branch_sampling(sampling: SamplingParams, index: int) -> SamplingParams:
    """The same with the seed plus `index`. Prompt log-probabilities are left to the first sequence."""
    seed = (sampling.seed or 0) + index
    span = SEED_RANGE.stop - SEED_RANGE.start
    return msgspec.structs.replace(
        sampling, seed=(seed - SEED_RANGE.start) % span + SEED_RANGE.start, prompt_logprobs=None
    )
