"""One choice of a request: from tokens to outputs, and when it ends."""

from collections.abc import Mapping, Sequence

from corelm.contracts.tokenizer import IncrementalDecoder
from corelm.engine.stopping import StopMatcher, StopString
from corelm.outputs import FinishReason, RequestOutput, TokenLogprobs
from corelm.sampling import SamplingParams
from corelm.scheduler.sequence import Sequence as ScheduledSequence


class Choice:
    """Turns the tokens of a sequence into outputs."""

    def __init__(
        self,
        request_id: str,
        index: int,
        sequence: ScheduledSequence,
        decoder: IncrementalDecoder,
        params: SamplingParams,
        stop: Sequence[StopString],
        stop_tokens: Mapping[int, str | int],
    ) -> None:
        self.index = index
        self.sequence = sequence
        self.finished = False
        self.cumulative_logprob = 0.0
        self.completion_tokens = 0
        self.prompt_logprobs: list[TokenLogprobs | None] | None = None
        """Those of the whole prompt, until the first output takes them along."""
        self._request_id = request_id
        self._decoder = decoder
        self._matcher = StopMatcher(stop, include=params.include_stop_str_in_output)
        self._has_stops = bool(stop)
        self._stop_tokens = stop_tokens
        """Tokens that end the choice, each with the stop reason to report."""
        self._show_stop_token = params.include_stop_str_in_output
        self._min_tokens = params.min_tokens
        self._report_logprobs = params.logprobs is not None
        self._sums_logprobs = sequence.sampling.logprobs is not None

    def advance(self, token_ids: list[int], logprobs: list[TokenLogprobs] | None = None) -> RequestOutput:
        """The output for new tokens. Tokens after the one that ends the choice are dropped."""
        text = ""
        finish: FinishReason | None = None
        reason: str | int | None = None
        before = self.completion_tokens
        for token in token_ids:
            self.completion_tokens += 1
            early = self.completion_tokens <= self._min_tokens
            if token in self._stop_tokens and not early:
                if self._show_stop_token:
                    text += self._matcher.push(self._decoder.push((token,)))
                text += self._flush()
                finish, reason = "stop", self._stop_tokens[token]
                break
            piece = self._decoder.push((token,))
            if early or not self._has_stops:
                text += piece
            else:
                text += self._matcher.push(piece)
                if self._matcher.matched is not None:
                    finish, reason = "stop", self._matcher.matched
                    break
            if self.completion_tokens == self.sequence.max_tokens:
                text += self._flush()
                finish = "length" if self._matcher.matched is None else "stop"
                reason = self._matcher.matched
                break
        if not self.sequence.max_tokens:
            finish = "length"
        return self._output(text, token_ids[: self.completion_tokens - before], logprobs, finish, reason)

    def _flush(self) -> str:
        return self._matcher.push(self._decoder.flush()) + self._matcher.flush()

    def _output(
        self,
        text: str,
        token_ids: list[int],
        logprobs: list[TokenLogprobs] | None,
        finish: FinishReason | None,
        reason: str | int | None,
    ) -> RequestOutput:
        self.finished = finish is not None
        used: tuple[TokenLogprobs, ...] | None = None
        if logprobs is not None:
            used = tuple(logprobs[: len(token_ids)])
            self.cumulative_logprob += sum(entry.logprob for entry in used)
        prompt_logprobs, self.prompt_logprobs = self.prompt_logprobs, None
        if prompt_logprobs is not None and None in prompt_logprobs[1:]:
            raise RuntimeError("the executor left out log-probabilities of the prompt")
        return RequestOutput(
            request_id=self._request_id,
            index=self.index,
            text=text,
            token_ids=tuple(token_ids),
            logprobs=used if self._report_logprobs else None,
            prompt_logprobs=None if prompt_logprobs is None else tuple(prompt_logprobs),
            cumulative_logprob=self.cumulative_logprob if self.finished and self._sums_logprobs else None,
            finish_reason=finish,
            stop_reason=reason,
            prompt_tokens=self.sequence.prompt_len,
            cached_tokens=self.sequence.cached_tokens or 0,
            completion_tokens=self.completion_tokens,
        )
