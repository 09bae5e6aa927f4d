"""One choice of a request: from tokens to outputs, and when it ends."""

from collections.abc import Mapping, Sequence

from corelm.contracts.grammar import GrammarMatcher
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
        matcher: GrammarMatcher | None = None,
    ) -> None:
        self.index = index
        self.sequence = sequence
        self.finished = False
        self.cumulative_logprob = 0.0
        self.completion_tokens = 0
        self.prompt_logprobs: list[TokenLogprobs | None] | None = None
        """Those of the whole prompt, until the first output takes them along."""
        self.matcher = matcher
        self.forced: list[int] = []
        """Tokens that the grammar added to those of the last output."""
        self._request_id = request_id
        self._decoder = decoder
        self._stop = StopMatcher(stop, include=params.include_stop_str_in_output)
        self._has_stops = bool(stop)
        self._stop_tokens = stop_tokens
        """Tokens that end the choice, each with the stop reason to report."""
        self._show_stop_token = params.include_stop_str_in_output
        self._min_tokens = params.min_tokens
        self._report_logprobs = params.logprobs is not None
        self._sums_logprobs = sequence.sampling.logprobs is not None
        self._takes_forced = not (
            self._sums_logprobs or params.bad_words or params.allowed_token_ids or params.logits_processors
        )
        self._finish: FinishReason | None = None
        self._reason: str | int | None = None

    def advance(self, token_ids: list[int], logprobs: list[TokenLogprobs] | None = None) -> RequestOutput:
        """The output for new tokens. Tokens after the one that ends the choice are dropped."""
        before = self.completion_tokens
        text = self._take(token_ids)
        if self.matcher is not None and token_ids:
            text += self._follow(self.matcher, token_ids[: self.completion_tokens - before])
        if not self.sequence.max_tokens:
            self._finish = "length"
        taken = [*token_ids, *self.forced][: self.completion_tokens - before]
        return self._output(text, taken, logprobs)

    def _take(self, token_ids: Sequence[int]) -> str:
        """The text of tokens, up to one that ends the choice."""
        text = ""
        for token in token_ids:
            self.completion_tokens += 1
            early = self.completion_tokens <= self._min_tokens
            if token in self._stop_tokens and not early:
                if self._show_stop_token:
                    text += self._stop.push(self._decoder.push((token,)))
                text += self._flush()
                self._finish, self._reason = "stop", self._stop_tokens[token]
                break
            piece = self._decoder.push((token,))
            if early or not self._has_stops:
                text += piece
            else:
                text += self._stop.push(piece)
                if self._stop.matched is not None:
                    self._finish, self._reason = "stop", self._stop.matched
                    break
            if self.completion_tokens == self.sequence.max_tokens:
                text += self._flush()
                self._finish = "length" if self._stop.matched is None else "stop"
                self._reason = self._stop.matched
                break
        return text

    def _follow(self, matcher: GrammarMatcher, token_ids: Sequence[int]) -> str:
        """Tell the grammar of tokens; the text of those that it forces. A whole output ends the choice."""
        text, self.forced = "", []
        if self._finish == "stop":
            return text
        matcher.accept(token_ids)
        if self._finish is None and self._takes_forced and not matcher.ended:
            before = self.completion_tokens
            self.forced = matcher.forced()[: self.sequence.max_tokens - before]
            text = self._take(self.forced)
            del self.forced[self.completion_tokens - before :]
            if self._finish == "stop":
                return text
            matcher.accept(self.forced)
        if matcher.ended:
            text += self._flush()
            self._finish, self._reason = "stop", None
        return text

    def _flush(self) -> str:
        return self._stop.push(self._decoder.flush()) + self._stop.flush()

    def _output(
        self,
        text: str,
        token_ids: list[int],
        logprobs: list[TokenLogprobs] | None,
    ) -> RequestOutput:
        self.finished = self._finish is not None
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
            finish_reason=self._finish,
            stop_reason=self._reason,
            prompt_tokens=self.sequence.prompt_len,
            cached_tokens=self.sequence.cached_tokens or 0,
            completion_tokens=self.completion_tokens,
        )
