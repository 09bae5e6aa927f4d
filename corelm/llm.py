"""The synchronous library: for scripts that have all their prompts at hand."""

import sys
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from functools import partial
from typing import Any, cast

from tqdm import tqdm

from corelm.assembly import configure, create_observers, engine_loader
from corelm.contracts.frontend import ModelCard, Prompt
from corelm.contracts.observer import EngineInfo
from corelm.contracts.tokenizer import Chat
from corelm.engine.async_engine import EMPTY_STEP_PAUSE_S
from corelm.engine.embedding import EmbeddingOutput
from corelm.engine.request import Request
from corelm.engine.streams import merge
from corelm.engine.worker import Worker
from corelm.errors import (
    BatchError,
    CorelmError,
    EngineDeadError,
    InvalidRequestError,
    QueueFullError,
    RequestFailedError,
)
from corelm.outputs import Embedding, RequestOutput
from corelm.sampling import SamplingParams

CLOSE_S = 5.0

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
        self._closed = False
        resolved, host = configure(model, settings)
        self._timeout_s = resolved.iteration_timeout_s
        # Steps run in a thread of their own, so that one that never ends can be given up and interrupted.
        self._thread = Worker("corelm-engine")
        self._observing = create_observers(resolved, host)
        load = engine_loader(resolved, host, self._observing)
        with tqdm(
            total=1.0, desc="loading", disable=not self._show, bar_format="{desc}: {percentage:3.0f}%|{bar}|"
        ) as bar:

            def report(fraction: float, text: str) -> None:
                bar.set_description_str(text, refresh=False)
                bar.update(fraction - bar.n)

            self._engine = self._thread.submit(partial(load, report)).result()
            report(1.0, "loaded")
        card = ModelCard(
            names=(self._engine.model_name,),
            created=int(time.time()),
            max_model_len=self._engine.intake.max_len,
            embedding_size=self._engine.info.embedding_size or None,
        )
        self._observing.started(EngineInfo(model=card, executor=self._engine.info))

    def generate(
        self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None = None
    ) -> list[RequestOutput]:
        """Continue each prompt (text, token ids or `Chat`); the outputs come in the order of the prompts.

        `params` is one for all or one for each. A prompt with several choices (`SamplingParams.n`) has as many
        outputs, one after the other. Prompts that are refused, and requests that fail alone, do not keep the others
        from ending: then a `BatchError` is raised, whose `results` hold the outputs or the error of each prompt.
        """
        every = _as_list(prompts)
        each = [params or SamplingParams()] * len(every) if not isinstance(params, Sequence) else list(params)
        if len(each) != len(every):
            raise InvalidRequestError(f"{len(every)} prompts but {len(each)} params", param="params")
        prepared = [partial(self._prepare, *pair) for pair in zip(every, each, strict=True)]
        return self._outputs(prepared, [one.n for one in each])

    def embed(self, prompts: Prompt | Sequence[Prompt]) -> list[Embedding]:
        """The embedding of each prompt, in their order: see `corelm.api.Embedding`. Errors are those of `generate`."""
        prepare = self._engine.intake.prepare_embedding
        prepared = [partial(prepare, prompt, None) for prompt in _as_list(prompts)]
        outputs = self._outputs(prepared, [1] * len(prepared))
        return [output.embedding for output in outputs if isinstance(output, EmbeddingOutput)]

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
        if not self._closed:
            self._closed = True
            freed = self._thread.submit(self._engine.shutdown)
            self._thread.close()
            futures.wait([freed], CLOSE_S)
            self._observing.close()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _prepare(self, prompt: Prompt, params: SamplingParams, *, request_id: str, arrival: float) -> Request:
        intake, wanted = self._engine.intake, params.structured_output
        grammar = None if wanted is None else intake.grammars().compile(wanted)
        return intake.prepare(prompt, params, request_id=request_id, arrival=arrival, grammar=grammar)

    def _outputs(self, prepared: Sequence[Callable[..., Request]], choices: list[int]) -> list[RequestOutput]:
        """The outputs of requests, which are given an id and the time of their arrival to be made."""
        if self._unusable is not None:
            raise EngineDeadError(f"this LLM can no longer be used: {self._unusable}; create a new one")
        requests: list[Request | CorelmError] = []
        for index, prepare in enumerate(prepared):
            try:
                requests.append(prepare(request_id=str(index), arrival=time.monotonic()))
            except (InvalidRequestError, QueueFullError, RequestFailedError) as error:
                requests.append(error)
        results = self._run(requests, choices)
        errors = {index: error for index, error in enumerate(results) if isinstance(error, CorelmError)}
        if errors:
            index, first = next(iter(errors.items()))
            if len(results) == 1:
                raise first
            raise BatchError(f"{len(errors)} of {len(results)} prompts failed; prompt {index}: {first}", results)
        return [output for outputs in results if not isinstance(outputs, CorelmError) for output in outputs]

    def _run(
        self, requests: list[Request | CorelmError], choices: list[int]
    ) -> list[list[RequestOutput] | CorelmError]:
        """For each request, one output per choice or its error."""
        accepted = [request for request in requests if isinstance(request, Request)]
        batch = Batch({item.number: n for item, n in zip(requests, choices, strict=True) if isinstance(item, Request)})
        try:
            for request in accepted:
                try:
                    self._engine.add(request)
                except (InvalidRequestError, QueueFullError) as error:
                    batch.enter(request.number, error)
            with tqdm(total=len(requests), unit="req", disable=not self._show) as bar:
                bar.update(len(requests) - len(accepted))
                while self._engine.has_work:
                    self._step(batch, bar)
        finally:
            if self._unusable is None:
                self._engine.abort(batch.outputs)
        return [batch.result(item.number) if isinstance(item, Request) else item for item in requests]

    def _step(self, batch: "Batch", bar: Any) -> None:
        try:
            emissions = self._thread.submit(self._engine.step).result(self._timeout_s)
        except TimeoutError as error:
            self._unusable = f"a step took longer than the iteration timeout of {self._timeout_s:g} s"
            self._observing.failed(self._unusable)
            raise EngineDeadError(self._unusable) from error
        except BaseException:
            self._unusable = "a step failed or was interrupted"
            self._observing.failed(self._unusable)
            raise
        for number, emission in emissions:
            bar.update(batch.enter(number, emission))
        if emissions:
            rate = batch.tokens / (bar.format_dict["elapsed"] or 1)
            bar.set_postfix_str(f"{rate:.0f} tokens/s", refresh=False)
        elif not self._engine.snapshot().running:
            time.sleep(EMPTY_STEP_PAUSE_S)


class Batch:
    """What there is so far for each of some requests, by number."""

    def __init__(self, choices: dict[int, int]) -> None:
        """`choices` says how many outputs each will have."""
        self.outputs: dict[int, dict[int, list[RequestOutput]]] = {number: {} for number in choices}
        """By choice."""
        self.tokens = 0
        self._unfinished = dict(choices)
        self._errors: dict[int, CorelmError] = {}

    def enter(self, number: int, emission: RequestOutput | CorelmError) -> int:
        """Take in what a step has for a request; 1 if that ended it, else 0."""
        if not isinstance(emission, RequestOutput):
            self._errors[number] = emission
            return 1
        self.outputs[number].setdefault(emission.index, []).append(emission)
        self.tokens += len(emission.token_ids)
        self._unfinished[number] -= emission.finish_reason is not None
        return not self._unfinished[number]

    def result(self, number: int) -> list[RequestOutput] | CorelmError:
        """One output per choice, or the error of the request."""
        if number in self._errors:
            return self._errors[number]
        choices = self.outputs[number]
        return [merge(choices[index]) for index in sorted(choices)]


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str | Chat):
        return [prompts]
    if prompts and isinstance(prompts[0], int):
        return [cast(Sequence[int], prompts)]
    return cast(list[Prompt], list(prompts))
