"""Turns what the engine does into events and timelines. Lives in the engine's thread."""

from collections.abc import Callable, Container, Mapping, Sequence

from corelm.contracts.executor import StepPlan
from corelm.contracts.observer import (
    Event,
    FirstToken,
    Outcome,
    RequestFinished,
    RequestPreempted,
    RequestQueued,
    RequestScheduled,
    StepFinished,
)
from corelm.engine.observing import Observing
from corelm.engine.request import Request
from corelm.engine.timeline import Timeline


class Journal:
    """What observers are told with the next `flush`. Without observers nothing is kept."""

    def __init__(self, observing: Observing, clock: Callable[[], float]) -> None:
        self._observing = observing
        self._clock = clock
        self._events: list[Event] = []
        self._entries: dict[int, _Entry] = {}
        """Of the requests that live, by number."""
        self._submitted: dict[int, float] = {}
        """When each step that runs was submitted."""
        self._collected = 0.0

    @property
    def active(self) -> bool:
        """Whether anybody listens. What comes once a token asks before it calls."""
        return self._observing.active

    def queued(self, request: Request) -> None:
        """A request began to wait."""
        if not self._observing.active:
            return
        now, first = self._clock(), request.first
        self._entries[request.number] = _Entry(Timeline(first.arrival, now))
        self._events.append(
            RequestQueued(
                time=now, request_id=request.request_id, prompt_tokens=first.prompt_len, options=first.options
            )
        )

    def planned(self, plan: StepPlan, owner: Mapping[int, Request]) -> None:
        """A step is about to be submitted; `owner` has the request of each sequence that lives.

        What the plan releases and still lives was preempted, and what it starts begins to run or runs again.
        """
        if not self._observing.active:
            return
        now = self._submitted[plan.step_id] = self._clock()
        started = {start.seq_id for start in plan.started}
        for seq_id in plan.released:
            if (request := owner.get(seq_id)) is not None:
                self._preempted(request, started, swapped=bool(request.sequences[seq_id].swap_ids), now=now)
        for start in plan.started:
            request = owner[start.seq_id]
            entry = self._entries.get(request.number)
            if entry is not None and entry.timeline.scheduled(now):
                self._events.append(RequestScheduled(time=now, request_id=request.request_id))

    def collected(self, plan: StepPlan) -> None:
        """The result of a step is there."""
        submitted = self._submitted.pop(plan.step_id, None)
        if submitted is None:
            return
        self._collected = self._clock()
        self._events.append(
            StepFinished(
                time=self._collected,
                step_id=plan.step_id,
                sequences=len(plan.slices),
                tokens=sum(item.num_tokens for item in plan.slices),
                seconds=self._collected - submitted,
            )
        )

    def advanced(self, request: Request, token_ids: Sequence[int]) -> None:
        """A sequence of a request got tokens from the step that was collected."""
        if (entry := self._entries.get(request.number)) is None:
            return
        entry.completion_tokens += len(token_ids)
        if token_ids and entry.timeline.first_token(self._collected):
            self._events.append(FirstToken(time=self._collected, request_id=request.request_id))

    def ended(self, request: Request, reason: Outcome) -> None:
        """A request has no sequences left."""
        if (entry := self._entries.pop(request.number, None)) is None:
            return
        now, first = self._clock(), request.first
        self._events.append(
            RequestFinished(
                time=now,
                request_id=request.request_id,
                reason=reason,
                prompt_tokens=first.prompt_len,
                cached_tokens=first.cached_tokens or 0,
                completion_tokens=entry.completion_tokens,
                options=first.options,
                timeline=entry.timeline.finished(now),
            )
        )

    def flush(self) -> None:
        """Tell the observers."""
        if self._events:
            events, self._events = self._events, []
            self._observing.publish(events)

    def _preempted(self, request: Request, started: Container[int], *, swapped: bool, now: float) -> None:
        entry = self._entries.get(request.number)
        if entry is None or any(s.block_ids for s in request.sequences.values() if s.seq_id not in started):
            return
        if entry.timeline.preempted(now):
            self._events.append(RequestPreempted(time=now, request_id=request.request_id, swapped=swapped))


class _Entry:
    __slots__ = ("completion_tokens", "timeline")

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.completion_tokens = 0
