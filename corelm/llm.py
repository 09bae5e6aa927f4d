"""The synchronous library: for scripts that have all their prompts at hand."""

import sys
import time
from collections.abc import Sequence
from typing import Any, cast

from tqdm import tqdm

from corelm.assembly import configure, engine_loader
from corelm.contracts.frontend import Prompt
from corelm.contracts.tokenizer import Chat
from corelm.engine.request import Request
from corelm.engine.streams import merge
from corelm.errors import EngineDeadError, InvalidRequestError
from corelm.outputs import RequestOutput
from corelm.sampling import SamplingParams

Messages = Sequence[dict[str, Any]]


class LLM:
    """A model in this process.

    Takes the settings of ``corelm run`` as keywords and from the environment, with the same defaults. Not
    thread-safe; for concurrent use see `corelm.create_engine`.
    """

    def __init__(self, model: str | None = None, *, progress: bool = True, **settings: Any) -> None:
        """Load `model` (the demo model by default). `progress` shows bars on a terminal's stderr."""
        self._show = progress and sys.stderr.isatty()
        self._unusable: str | None = None
        load = engine_loader(*configure(model, settings))
        with tqdm(
            total=1.0, desc="loading", disable=not self._show, bar_format="{desc}: {percentage:3.0f}%|{bar}|"
        ) as bar:

            def report(fraction: float, text: str) -> None:
                bar.set_description_str(text, refresh=False)
                bar.update(fraction - bar.n)

            self._engine = load(report)
            report(1.0, "loaded")

    def generate(
        self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None = None
    ) -> list[RequestOutput]:
        """Continue each prompt (text, token ids or `Chat`); the outputs come in the order of the prompts.

        `params` is one for all or one for each. If any prompt is refused, nothing runs and the
        `InvalidRequestError` says which one.
        """
        if self._unusable is not None:
            raise EngineDeadError(f"this LLM can no longer be used: {self._unusable}; create a new one")
        every = _as_list(prompts)
        each = [params or SamplingParams()] * len(every) if not isinstance(params, Sequence) else list(params)
        if len(each) != len(every):
            raise InvalidRequestError(f"{len(every)} prompts but {len(each)} params", param="params")
        return self._run([self._prepare(i, *pair) for i, pair in enumerate(zip(every, each, strict=True))])

    def chat(
        self,
        conversations: Messages | Sequence[Messages],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation (a list of messages) or several, rendered with the model's chat template."""
        single = bool(conversations) and isinstance(conversations[0], dict)
        every = cast(Sequence[Messages], [conversations] if single else conversations)
        return self.generate([Chat(messages=messages) for messages in every], params)

    def close(self) -> None:
        """Free the model. May be called twice."""
        self._unusable = self._unusable or "it was closed"
        self._engine.shutdown()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _prepare(self, index: int, prompt: Prompt, params: SamplingParams) -> Request:
        try:
            return self._engine.intake.prepare(prompt, params, request_id=str(index), arrival=time.monotonic())
        except InvalidRequestError as error:
            raise InvalidRequestError(f"prompt {index}: {error}", param=error.param, code=error.code) from error

    def _run(self, requests: list[Request]) -> list[RequestOutput]:
        outputs: dict[int, list[RequestOutput]] = {request.seq_id: [] for request in requests}
        try:
            for request in requests:
                self._engine.add(request)
            with tqdm(total=len(requests), unit="req", disable=not self._show) as bar:
                while self._engine.has_work:
                    self._step(outputs, bar)
        finally:
            self._engine.abort(outputs)
        return [merge(parts) for parts in outputs.values()]

    def _step(self, outputs: dict[int, list[RequestOutput]], bar: Any) -> None:
        try:
            emissions = self._engine.step()
        except BaseException:
            self._unusable = "a step failed or was interrupted"
            raise
        for seq_id, output in emissions:
            if not isinstance(output, RequestOutput):
                raise output
            outputs[seq_id].append(output)
            if output.finish_reason is not None:
                tokens = sum(parts[-1].completion_tokens for parts in outputs.values() if parts)
                bar.set_postfix_str(f"{tokens / (bar.format_dict['elapsed'] or 1):.0f} tokens/s", refresh=False)
                bar.update()


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str | Chat):
        return [prompts]
    if prompts and isinstance(prompts[0], int):
        return [cast(Sequence[int], prompts)]
    return cast(list[Prompt], list(prompts))
