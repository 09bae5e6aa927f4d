"""One request inside the engine: its sequence, its text, and when it ends."""

from collections.abc import Mapping, Sequence

from corelm.contracts.tokenizer import IncrementalDecoder
from corelm.engine.stopping import StopMatcher
from corelm.outputs import FinishReason, RequestOutput
from corelm.scheduler.sequence import Sequence as ScheduledSequence


class Request:
    """Turns the tokens of a sequence into outputs."""

    def __init__(
        self,
        sequence: ScheduledSequence,
        decoder: IncrementalDecoder,
        stop: Sequence[str],
        stop_tokens: Mapping[int, str | int],
    ) -> None:
        self.sequence = sequence
        self._decoder = decoder
        self._matcher = StopMatcher(stop)
        self._stop_tokens = stop_tokens
        """Tokens that end the request, each with the stop reason to report."""
        self._completion_tokens = 0

    @property
    def seq_id(self) -> int:
        return self.sequence.seq_id

    def advance(self, token_ids: list[int]) -> RequestOutput:
        """The output for new tokens. Tokens after the one that ends the request are dropped."""
        text = ""
        for used, token in enumerate(token_ids, 1):
            self._completion_tokens += 1
            if token in self._stop_tokens:
                return self._output(text + self._flush(), token_ids[:used], "stop", self._stop_tokens[token])
            text += self._matcher.push(self._decoder.push((token,)))
            if self._matcher.matched is not None:
                return self._output(text, token_ids[:used], "stop", self._matcher.matched)
            if self._completion_tokens == self.sequence.max_tokens:
                text += self._flush()
                reason: FinishReason = "length" if self._matcher.matched is None else "stop"
                return self._output(text, token_ids[:used], reason, self._matcher.matched)
        return self._output(text, token_ids, None, None)

    def _flush(self) -> str:
        return self._matcher.push(self._decoder.flush()) + self._matcher.flush()

    def _output(
        self, text: str, token_ids: list[int], finish: FinishReason | None, reason: str | int | None
    ) -> RequestOutput:
        return RequestOutput(
            request_id=self.sequence.request_id,
            text=text,
            token_ids=tuple(token_ids),
            finish_reason=finish,
            stop_reason=reason,
            prompt_tokens=self.sequence.prompt_len,
            cached_tokens=self.sequence.cached_tokens or 0,
            completion_tokens=self._completion_tokens,
        )
