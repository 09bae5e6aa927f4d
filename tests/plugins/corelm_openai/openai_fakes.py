"""An engine that follows a script: what a frontend sees of the real one, without a model."""

import asyncio
from collections import Counter

from corelm.api import (
    Chat,
    DuplicateRequestError,
    EngineStats,
    EngineStoppedError,
    InvalidRequestError,
    ModelCard,
    RequestOutput,
)

VOCAB_SIZE = 1000


def answer(prompt, seed=None):
    """The pieces of text that the fake model says to a prompt."""
    if isinstance(prompt, Chat):
        text = " ".join(message["content"] for message in prompt.messages)
    elif isinstance(prompt, str):
        text = prompt
    else:
        text = " ".join(map(str, prompt))
    return [f"{word}{'' if seed is None else f'/{seed}'} " for word in text.split(" ")] * 3


class FakeStream:
    """Merges what was not read, ends once, and aborts when the task that reads it is cancelled."""

    def __init__(self, engine, call):
        self.request_id = call["request_id"]
        self.end_with = None
        """The finish reason or the error."""
        self._call = call
        self._engine = engine
        self._unread = []
        self._count = 0
        self._taken = False
        self._changed = asyncio.Event()

    def put(self, piece, finish_reason=None):
        if self.end_with is None:
            self._unread.append(piece)
            self._count += 1
            if finish_reason:
                self.end(finish_reason)
            self._changed.set()

    def end(self, reason):
        if self.end_with is None:
            self.end_with = reason
            self._engine.ended(self)
            self._changed.set()

    def abort(self):
        self.end("abort")

    def __aiter__(self):
        return self

    async def __anext__(self):
        while not self._unread and self.end_with is None:
            await self._change()
        if not self._unread and isinstance(self.end_with, Exception):
            raise self.end_with
        if self._taken:
            raise StopAsyncIteration
        return self._take()

    async def result(self):
        while self.end_with is None:
            await self._change()
        if isinstance(self.end_with, Exception):
            raise self.end_with
        return self._take()

    async def _change(self):
        self._changed.clear()
        try:
            await self._changed.wait()
        except asyncio.CancelledError:
            self.abort()
            raise

    def _take(self):
        pieces, self._unread = self._unread, []
        self._taken = isinstance(self.end_with, str)
        return RequestOutput(
            request_id=self.request_id,
            text="".join(pieces),
            token_ids=(1,) * len(pieces),
            finish_reason=self.end_with if self._taken else None,
            prompt_tokens=self._call["prompt_tokens"],
            completion_tokens=self._count,
        )


class FakeEngine:
    """Says `answer(prompt)`, a piece per turn of the event loop, unless told otherwise."""

    def __init__(self):
        self.status = "ready"
        self.names = ("fake", "org/fake-1.5b")
        self.live = {}
        self.calls = []
        self.finished = Counter()
        self.say = answer
        """Pieces for a prompt and a seed."""
        self.gate = None
        """If set, an event that requests wait for after `gate_after` pieces."""
        self.gate_after = 0
        self.waiting = 0
        """Requests that came to the gate."""
        self.fail_with = None
        self.fail_after = 0
        """Pieces after which requests end with `fail_with`."""
        self.admit = None
        """If set, an event that `generate` waits for."""
        self.refuse = {}
        """Errors that `generate` raises, by the number of the call."""
        self.dead = None
        self._tasks = {}

    @property
    def model(self):
        return ModelCard(names=self.names, created=1700000000, max_model_len=4096)

    async def generate(self, prompt, params, *, request_id=None, priority=0, tenant=None):
        await self.check_health()
        if request_id in self.live:
            raise DuplicateRequestError(f"{request_id} is alive")
        call = {"prompt": prompt, "params": params, "request_id": request_id, "priority": priority, "tenant": tenant}
        call["prompt_tokens"] = self._count(prompt)
        self.calls.append(call)
        number = len(self.calls) - 1
        await (self.admit.wait() if self.admit else asyncio.sleep(0))
        if number in self.refuse:
            raise self.refuse[number]
        stream = FakeStream(self, call)
        self.live[request_id] = stream
        self._tasks[request_id] = asyncio.create_task(self._produce(stream, prompt, params))
        return stream

    def _count(self, prompt):
        if isinstance(prompt, Chat):
            return sum(len(message["content"].split()) for message in prompt.messages)
        if isinstance(prompt, str):
            return len(prompt.split())
        for token in prompt:
            if not 0 <= token < VOCAB_SIZE:
                raise InvalidRequestError(f"token id {token} is outside the vocabulary", param="prompt")
        return len(prompt)

    async def _produce(self, stream, prompt, params):
        pieces = self.say(prompt, params.seed)
        room = len(pieces) if params.max_tokens is None else params.max_tokens
        reason = "stop" if room >= len(pieces) else "length"
        for number, piece in enumerate(pieces[:room]):
            if self.gate and number == self.gate_after:
                self.waiting += 1
                await self.gate.wait()
            if self.fail_with and number == self.fail_after:
                stream.end(self.fail_with)
                return
            stream.put(piece, reason if number == len(pieces[:room]) - 1 else None)
            await asyncio.sleep(0)
        if not pieces:
            stream.put("", "stop")

    def ended(self, stream):
        self.live.pop(stream.request_id, None)
        self.finished[stream.end_with if isinstance(stream.end_with, str) else "error"] += 1
        task = self._tasks.pop(stream.request_id)
        if task is not asyncio.current_task():
            task.cancel()

    def end_all(self, error):
        for stream in list(self.live.values()):
            stream.end(error)

    def abort(self, request_id):
        if request_id in self.live:
            self.live[request_id].abort()

    async def check_health(self):
        if self.dead:
            raise self.dead
        if self.status != "ready":
            raise EngineStoppedError(f"the engine is {self.status}")

    def stats(self):
        return EngineStats(
            running=len(self.live),
            waiting=0,
            total_blocks=1,
            free_blocks=1,
            finished=dict(self.finished),
            preemptions=0,
            steps=0,
            prompt_tokens=0,
            generation_tokens=0,
        )
