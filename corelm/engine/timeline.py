"""Takes down where the time of one request goes."""

from typing import Literal

from corelm.contracts.observer import RequestTimeline

Part = Literal["waiting", "prefill", "decode", "preempted"]


class Timeline:
    """A request's transitions, each told with the time of the monotonic clock.

    Each method returns whether the transition changed anything: a request that runs cannot begin to run.
    """

    __slots__ = ("_arrival", "_first_token", "_part", "_preemptions", "_queued", "_scheduled", "_since", "_spent")

    def __init__(self, arrival: float, queued: float) -> None:
        """`queued` is when it was prepared and began to wait; waiting counts from `arrival`."""
        self._arrival = self._since = arrival
        self._queued = queued
        self._scheduled: float | None = None
        self._first_token: float | None = None
        self._preemptions = 0
        self._part: Part = "waiting"
        self._spent: dict[Part, float] = {"waiting": 0.0, "prefill": 0.0, "decode": 0.0, "preempted": 0.0}

    def scheduled(self, now: float) -> bool:
        """It runs, for the first time or again."""
        if self._part not in ("waiting", "preempted"):
            return False
        if self._scheduled is None:
            self._scheduled = now
        self._enter("prefill" if self._first_token is None else "decode", now)
        return True

    def first_token(self, now: float) -> bool:
        """It has a token."""
        if self._first_token is not None:
            return False
        self._first_token = now
        if self._part == "prefill":
            self._enter("decode", now)
        return True

    def preempted(self, now: float) -> bool:
        """It lost its blocks."""
        if self._part not in ("prefill", "decode"):
            return False
        self._preemptions += 1
        self._enter("preempted", now)
        return True

    def finished(self, now: float) -> RequestTimeline:
        """It ended, however."""
        self._enter(self._part, now)
        return RequestTimeline(
            arrival=self._arrival,
            queued=self._queued,
            scheduled=self._scheduled,
            first_token=self._first_token,
            finished=now,
            waiting_s=self._spent["waiting"],
            prefill_s=self._spent["prefill"],
            decode_s=self._spent["decode"],
            preempted_s=self._spent["preempted"],
            preemptions=self._preemptions,
        )

    def _enter(self, part: Part, now: float) -> None:
        self._spent[self._part] += now - self._since
        self._part, self._since = part, now
