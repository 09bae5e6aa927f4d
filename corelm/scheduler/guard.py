"""Between the mechanism and a policy: what a policy does wrong is reported, and does not stop the engine."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from corelm.contracts.scheduling import RequestView, SchedulingPolicy, ServedTokens
from corelm.errors import InvalidRequestError, PolicyError, QueueFullError, describe_with_place

logger = logging.getLogger("corelm.scheduler")

T = TypeVar("T")

SLOW_S = 1.0
"""A call that takes longer is reported."""
REST = 10.0
"""After a slow call the policy is not asked for this many times as long, so that it cannot take all the time."""
STALL_S = 10.0
"""How long a policy may let nobody run while requests wait."""
REPORT_INTERVAL_S = 60.0


_NO_MORE = object()


class StrictPolicyError(PolicyError):
    """A failure that a strict guard found, in contrast to a `PolicyError` that a policy raised."""


class PolicyGuard:
    """Asks a policy; where it fails, decides by first come, first served instead, for that step.

    A policy fails if it raises, answers with ids that it was not asked about, gives keys that cannot be compared, lets
    nobody run for `STALL_S`, or takes longer than `SLOW_S`. With `strict`, any failure is a `PolicyError`, which ends
    the engine.
    """

    def __init__(
        self,
        policy: SchedulingPolicy,
        *,
        name: str = "",
        strict: bool = False,
        clock: Callable[[], float],
    ) -> None:
        """`name` is what messages call the policy; it should name the plugin."""
        self.failures = 0
        self.is_dynamic = type(policy).order is not SchedulingPolicy.order
        self.accounts = type(policy).served is not SchedulingPolicy.served
        self._policy = policy
        self._name = name or f"policy {type(policy).__name__}"
        self._strict = strict
        self._clock = clock
        self._rests_until: float | None = None
        self._idle_since: float | None = None
        self._reported_at: float | None = None
        self._unreported = 0

    def arrival_key(self, request: RequestView) -> Any:
        """The key of a request that arrives. The policy may refuse it: `InvalidRequestError`, `QueueFullError`."""
        return self._ask("key", lambda: self._policy.key(request), None, passing=(InvalidRequestError, QueueFullError))

    def key(self, request: RequestView) -> Any:
        """The key of a request that waits again; None, which goes by arrival, if there is none."""
        return self._ask("key", lambda: self._policy.key(request), None)

    def order(self, waiting: Sequence[RequestView]) -> Iterator[str]:
        """Ids of waiting requests in the policy's order; where it fails, the others as they came."""
        left = {request.request_id: request.arrival for request in waiting}
        try:
            for name in self._names(waiting):
                if not isinstance(name, str):
                    raise TypeError(f"it has to give request_ids, not a {type(name).__name__}")
                if left.pop(name, None) is None:
                    raise ValueError(f"{name!r} does not wait or came twice")
                yield name
        except StrictPolicyError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - reported
            self.fail(f"order() failed: {describe_with_place(error)}", error)
            yield from sorted(left, key=left.__getitem__)

    def victim(self, running: Sequence[RequestView]) -> str:
        """Id of the running request that gives way."""
        last = max(running, key=lambda request: request.arrival).request_id
        name = self._ask("victim", lambda: self._policy.victim(running, self._clock()), last)
        if any(request.request_id == name for request in running):
            return name
        self.fail(f"victim() chose {name!r}, which does not run")
        return last

    def swap(self, request: RequestView) -> bool:
        """Whether a victim is swapped rather than computed anew."""
        return self._ask("swap", lambda: self._policy.swap(request), True)

    def served(self, work: Sequence[ServedTokens]) -> None:
        """Tell the policy what a step computed."""
        self._ask("served", lambda: self._policy.served(work), None)

    def is_stalling(self, *, idle: bool) -> bool:
        """Whether the policy has let nobody run for too long. `idle`: nobody runs, and requests wait."""
        now = self._clock()
        if not idle:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since > STALL_S:
            self._idle_since = None
            self._rests_until = now + STALL_S
            self.fail(f"order() let nobody run for {STALL_S:g} s, it is not asked again for as long")
            return True
        return False

    def fail(self, what: str, error: BaseException | None = None) -> None:
        """Report a failure, or raise it if the guard is strict."""
        message = f"{self._name}: {what}"
        if self._strict:
            raise StrictPolicyError(message) from error
        self.failures += 1
        now = self._clock()
        if self._reported_at is not None and now - self._reported_at < REPORT_INTERVAL_S:
            self._unreported += 1
            return
        since = f" ({self._unreported} more failures since the last report)" if self._unreported else ""
        logger.warning("%s; first come, first served instead%s", message, since, exc_info=error)
        self._reported_at, self._unreported = now, 0

    def _names(self, waiting: Sequence[RequestView]) -> Iterator[Any]:
        if self._rests():
            waiting = sorted(waiting, key=lambda request: request.arrival)
            yield from [request.request_id for request in waiting]
            return
        before = self._clock()
        names = iter(self._policy.order(waiting, before))
        self._check_time(self._clock() - before)
        taken = 0.0
        while taken <= SLOW_S:
            before = self._clock()
            name = next(names, _NO_MORE)
            taken += self._clock() - before
            if name is _NO_MORE:
                return
            yield name
        self._check_time(taken)
        raise TimeoutError("it is too slow")

    def _ask(self, method: str, call: Callable[[], T], instead: T, *, passing: tuple[type[Exception], ...] = ()) -> T:
        if self._rests():
            return instead
        before = self._clock()
        try:
            result = call()
        except passing:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - reported
            self.fail(f"{method}() raised {describe_with_place(error)}", error)
            return instead
        self._check_time(self._clock() - before)
        return result

    def _rests(self) -> bool:
        if self._rests_until is not None and self._clock() >= self._rests_until:
            self._rests_until = None
        return self._rests_until is not None

    def _check_time(self, taken: float) -> None:
        if taken > SLOW_S:
            self._rests_until = self._clock() + REST * taken
            self.fail(f"a call took {taken:.1f} s, it is not asked again for {REST * taken:.0f} s")
