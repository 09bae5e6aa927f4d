"""An engine that follows a script: what a frontend sees of the real one, without a model."""

import asyncio
import re
from collections import Counter

from corelm.api import (
    Chat,
    DuplicateRequestError,
    EngineStats,
    EngineStoppedError,
    InvalidRequestError,
    ModelCard,
    RequestOptions,
    RequestOutput,
    TokenLogprobs,
)

VOCAB_SIZE = 1000
"""Ids from here on are given to pieces of text as they appear; the others stand for their number in brackets."""


NO_OPTIONS = RequestOptions()


def answer(prompt, seed=None):
    """The pieces of text that the fake model says to a prompt. A piece may also be a pair of text and token bytes."""
    if isinstance(prompt, Chat):
        text = " ".join(message["content"] or "" for message in prompt.messages)
    elif isinstance(prompt, str):
        text = prompt
    else:
        text = " ".join(map(str, prompt))
    return [f"{word}{'' if seed is None else f'/{seed}'} " for word in text.split(" ")] * 3


class FakeVocabulary:
    """Ids for bytes."""

    def __init__(self):
        self._ids = {}
        self._known = []

    def id_of(self, raw):
        if raw not in self._ids:
            self._ids[raw] = VOCAB_SIZE + len(self._known)
            self._known.append(raw)
        return self._ids[raw]

    def __len__(self):
        return VOCAB_SIZE + len(self._known)

    def bytes_of(self, token_id):
        return self._known[token_id - VOCAB_SIZE] if token_id >= VOCAB_SIZE else f"<{token_id}>".encode()

    def logprobs(self, token_id, position, top):
        """Made-up ones; the token is the most probable at every other position."""
        best = [token_id] * (position % 2) + list(range(20))
        values = [-(number + 1) / 8 for number in range(top)]
        first = best[0] == token_id
        return TokenLogprobs(
            token_id=token_id,
            logprob=-0.125 if first else -7.0 - position,
            rank=1 if first else 30,
            top_ids=tuple(best[:top]),
            top_logprobs=tuple(values),
        )


class FakeStream:
    """Merges what was not read, ends once, and aborts when the task that reads it is cancelled."""

    def __init__(self, engine, call):
        self.request_id = call["request_id"]
        self.end_with = None
        """``done``, ``abort`` or the error."""
        n = call["params"].n
        self._call = call
        self._engine = engine
        self._unread = {}
        """Pieces of text and tokens of each choice that has something to be read."""
        self._counts = [0] * n
        self._reasons = [None] * n
        self._begun = set()
        self._changed = asyncio.Event()

    def put(self, index, text, token_ids, finish_reason=None):
        if self.end_with is None:
            self._unread.setdefault(index, []).append((text, token_ids))
            self._counts[index] += len(token_ids)
            self._reasons[index] = finish_reason
            if all(self._reasons):
                self.end("done")
            self._changed.set()

    def end(self, reason):
        if self.end_with is not None:
            return
        self.end_with = reason
        for index, finished in enumerate(self._reasons):
            if reason == "abort" and not finished:
                self._unread.setdefault(index, [])
                self._reasons[index] = "abort"
        self._engine.ended(self)
        self._changed.set()

    def abort(self):
        self.end("abort")

    def __aiter__(self):
        return self

    async def __anext__(self):
        while not self._unread and self.end_with is None:
            await self._change()
        if self._unread:
            return self._take(next(iter(self._unread)))
        if isinstance(self.end_with, Exception):
            raise self.end_with
        raise StopAsyncIteration

    async def results(self):
        while self.end_with is None:
            await self._change()
        if isinstance(self.end_with, Exception):
            raise self.end_with
        return [self._take(index) for index in range(len(self._counts))]

    async def _change(self):
        self._changed.clear()
        try:
            await self._changed.wait()
        except asyncio.CancelledError:
            self.abort()
            raise

    def _take(self, index):
        pieces = self._unread.pop(index)
        token_ids = [token for _, tokens in pieces for token in tokens]
        first = index not in self._begun
        self._begun.add(index)
        return RequestOutput(
            request_id=self.request_id,
            index=index,
            text="".join(text for text, _ in pieces),
            token_ids=tuple(token_ids),
            logprobs=self._logprobs(token_ids, self._counts[index] - len(token_ids)),
            prompt_logprobs=self._call["prompt_logprobs"] if first else None,
            finish_reason=self._reasons[index],
            prompt_tokens=len(self._call["prompt_ids"]),
            completion_tokens=self._counts[index],
        )

    def _logprobs(self, token_ids, start):
        top = self._call["params"].logprobs
        if top is None or not token_ids:
            return None
        return tuple(
            self._engine.vocabulary.logprobs(token, position, top) for position, token in enumerate(token_ids, start)
        )


class FakeEngine:
    """Says `answer(prompt)`, a piece per turn of the event loop, unless told otherwise."""

    def __init__(self):
        self.status = "ready"
        self.names = ("fake", "org/fake-1.5b")
        self.live = {}
        self.calls = []
        self.finished = Counter()
        self.vocabulary = FakeVocabulary()
        self.bos = None
        """If set, the bytes of a token that comes before texts."""
        self.say = answer
        """Pieces for a prompt and a seed; choice i gets the seed plus i."""
        self.gate = None
        """If set, an event that requests wait for after `gate_after` pieces of each choice."""
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
        self.observers = []
        self.special = {}
        """Tokens besides those of the vocabulary, by their text."""
        self.knows_tools = True
        """Whether its chat template does."""
        self.rendered = []
        """Every chat that `tokenize` was given."""
        self.prompt_end = ""
        """What `detokenize` says of every prompt."""
        self.asked_tokens = []
        """Every token whose bytes were asked for."""
        self._tasks = {}

    @property
    def model(self):
        return ModelCard(names=self.names, created=1700000000, max_model_len=4096)

    async def generate(self, prompt, params, *, request_id=None, options=NO_OPTIONS):
        await self.check_health()
        if request_id in self.live:
            raise DuplicateRequestError(f"{request_id} is alive")
        call = {"prompt": prompt, "params": params, "request_id": request_id, "options": options}
        call["prompt_ids"] = self._tokens(prompt)
        call["prompt_logprobs"] = self._prompt_logprobs(call["prompt_ids"], params.prompt_logprobs)
        self.calls.append(call)
        number = len(self.calls) - 1
        await (self.admit.wait() if self.admit else asyncio.sleep(0))
        if number in self.refuse:
            raise self.refuse[number]
        stream = FakeStream(self, call)
        self.live[request_id] = stream
        self._tasks[request_id] = asyncio.create_task(self._produce(stream, prompt, params))
        return stream

    async def tokenize(self, prompt, *, add_special_tokens=True):
        await asyncio.sleep(0)
        if isinstance(prompt, Chat):
            self.rendered.append(prompt)
            if prompt.tools and not self.knows_tools:
                raise InvalidRequestError("no tools", param="tools")
        if isinstance(prompt, str) and prompt in self.special:
            return [self.special[prompt]]
        return list(prompt.encode()) if isinstance(prompt, str) else self._tokens(prompt)

    async def detokenize(self, token_ids):
        await asyncio.sleep(0)
        return self.prompt_end

    async def token_bytes(self, ids):
        self.asked_tokens += ids
        await asyncio.sleep(0)
        return [self.vocabulary.bytes_of(token) for token in ids]

    def _tokens(self, prompt):
        if isinstance(prompt, Chat):
            return [token for message in prompt.messages for token in self._tokens(message["content"] or "")]
        if isinstance(prompt, str):
            words = [word.encode() for word in re.findall(r"\S+\s*|\s+", prompt)]
            return [self.vocabulary.id_of(word) for word in ([self.bos, *words] if self.bos else words)]
        for token in prompt:
            if not 0 <= token < len(self.vocabulary):
                raise InvalidRequestError(f"token id {token} is outside the vocabulary", param="prompt")
        return prompt

    def _prompt_logprobs(self, ids, top):
        if top is None:
            return None
        rest = [self.vocabulary.logprobs(token, position, top) for position, token in enumerate(ids[1:])]
        return (None, *rest)

    async def _produce(self, stream, prompt, params):
        said = [self.say(prompt, None if params.seed is None else params.seed + index) for index in range(params.n)]
        room = max(map(len, said)) if params.max_tokens is None else params.max_tokens
        for number in range(max(1, min(room, max(map(len, said))))):
            if self.gate and number == self.gate_after:
                self.waiting += 1
                await self.gate.wait()
            if self.fail_with and number == self.fail_after:
                stream.end(self.fail_with)
                return
            for index, pieces in enumerate(said):
                self._put(stream, index, pieces, number, room)
            await asyncio.sleep(0)

    def _put(self, stream, index, pieces, number, room):
        last = number >= min(len(pieces), room) - 1
        reason = None if not last else "length" if room < len(pieces) else "stop"
        if number < min(len(pieces), room):
            text, raw = piece if isinstance(piece := pieces[number], tuple) else (piece, piece.encode())
            stream.put(index, text, [self.vocabulary.id_of(raw)], reason)
        elif number == 0:
            stream.put(index, "", [], reason)

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

    def observe(self, observer):
        self.observers.append(observer)

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
