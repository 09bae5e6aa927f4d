"""The suite for scheduling policies."""

import gc
import types
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Any
from unittest import SkipTest

import msgspec

from corelm.contracts.scheduling import RequestView, SchedulingPolicy, ServedTokens
from corelm.errors import InvalidRequestError
from corelm.testing.conformance.policy_referee import Referee, StrictView
from corelm.testing.conformance.policy_world import World, live_through

OVERTAKEN = 20
"""Nobody waits longer than this many times what is the longest wait under first come, first served."""


class SampleView(msgspec.Struct, kw_only=True, eq=False):
    """A `corelm.api.RequestView` of a request that is nowhere."""

    request_id: str
    arrival: float = 0.0
    priority: int = 0
    tenant: str | None = None
    session: str | None = None
    deadline: float | None = None
    prompt_tokens: int = 8
    cached_prefix_tokens: int = 0
    output_tokens: int = 0
    max_tokens: int = 16
    num_blocks: int = 0
    preemptions: int = 0


class PolicyConformance:
    """Checks a scheduling policy against its contract, alone and under the real scheduler::

        class TestMine(PolicyConformance):
            def make_policy(self):
                return MyPolicy()

    Needs no model. Every check asks `make_policy` for a fresh policy with nothing in its memory. A step takes a tenth
    of a second here: choose settings by which waiting counts within seconds, not minutes.
    """

    starves: bool = False
    """Set it to True if the policy may let a request wait for as long as others keep coming, as strict priorities do.
    Say so in its documentation. Requests must still end once no others come."""
    decision_ms: float = 20.0
    """Most milliseconds for one decision among 1,000 requests."""

    def make_policy(self) -> SchedulingPolicy:
        """Your policy, as its factory makes it."""
        raise NotImplementedError("define make_policy(self) in your suite: return YourPolicy()")

    def test_it_decides_something(self) -> None:
        policy = type(self.make_policy())
        methods = [name for name in vars(SchedulingPolicy) if not name.startswith("_")]
        own = sorted(name for name in dir(policy) if not name.startswith("_") and name not in methods)
        decides = any(getattr(policy, name) is not getattr(SchedulingPolicy, name) for name in methods)
        assert decides or not own, (
            f"{policy.__name__} overrides none of {', '.join(methods)}, so it is first come, first served; is one of "
            f"its methods misspelt: {', '.join(own)}?"
        )

    def test_only_views_are_read(self) -> None:
        referee, waiting = self._arrived(6)
        referee.order(waiting, 200.0)
        referee.victim(waiting, 200.0)
        referee.swap(waiting[0])
        referee.served([ServedTokens(view, 4, 1) for view in waiting])

    def test_keys_can_be_compared(self) -> None:
        self._arrived(16)

    def test_keys_are_stable(self) -> None:
        referee, views = self._arrived(16)
        for view in views:
            first, second = referee.key(view), referee.key(view)
            assert first == second, (
                f"key() gave {first!r} and then {second!r} for the same request at the same time; victim() may ask it "
                "again, so it must follow from the request and from what served() said"
            )

    def test_order_names_who_waits(self) -> None:
        for count in (1, 2, 16):
            referee, waiting = self._arrived(count)
            for now in (200.0, 200.1, 1000.0):
                referee.order(waiting, now)
            referee.order(waiting[-1:], 1000.1)

    def test_victims_run(self) -> None:
        for count in (1, 2, 16):
            referee, running = self._arrived(count)
            for now in (200.0, 200.1, 1000.0):
                referee.victim(running, now)
            referee.victim(running[::-1], 1000.1)

    def test_the_same_calls_get_the_same_answers(self) -> None:
        one, other = World(self.make_policy()), World(self.make_policy())
        for world in (one, other):
            live_through(world, steps=60)
        assert one.referee.answers == other.referee.answers, (
            "two fresh policies answered the same calls differently: let answers follow from views, `now` and "
            "served(), not from chance, the time of day or the order of a set"
        )

    def test_requests_live_and_end(self) -> None:
        for seed in range(3):
            live_through(World(self.make_policy()), steps=80, seed=seed)

    def test_nobody_starves(self) -> None:
        if self.starves:
            raise SkipTest("starves = True: the policy may let requests wait for as long as others come")
        most = OVERTAKEN * _longest_stay(World(SchedulingPolicy()), steps=400)
        stay = _longest_stay(World(self.make_policy()), steps=2 * most)
        assert stay <= most, (
            f"a request was overtaken for {stay} steps while others kept coming, though none has to stay for "
            f"{most // OVERTAKEN} if the first come is the first served: let waiting count, or set starves = True in "
            "your suite and say so in the policy's documentation"
        )

    def test_memory_is_bounded(self) -> None:
        policy = self.make_policy()
        world = World(policy)
        live_through(world, steps=60)
        before = _reachable(policy)
        for number in range(250):
            names = [world.arrive(4, 1, tenant=tenant) for tenant in (None, "a", "b", f"tenant {number}")]
            world.step()
            world.abort(names[-1])
        world.drain()
        grown = _reachable(policy) - before
        assert grown < 500, (
            f"the policy keeps {grown} objects more after 1,000 more requests, all of which have ended: forget what "
            "you keep of a request once it is not in `waiting`, `running` or `work` any more"
        )

    def test_decisions_are_fast(self) -> None:
        _, waiting = self._arrived(1000)
        policy = self.make_policy()
        self._time("key() of 1,000 requests", lambda: [policy.key(view) for view in waiting])
        self._time("order() of 1,000 waiting requests", lambda: list(policy.order(waiting, 200.0)))
        self._time("victim() among 1,000 running requests", lambda: policy.victim(waiting, 200.0))
        work = [ServedTokens(view, 4, 1) for view in waiting]
        self._time("served() with 1,000 requests", lambda: policy.served(work))

    def _arrived(self, count: int) -> tuple[Referee, list[RequestView]]:
        """A fresh policy and requests that it has let in, in the order of its keys."""
        referee = Referee(self.make_policy())
        keys = []
        for view in _views(count):
            with suppress(InvalidRequestError):
                keys.append((referee.key(view), view.arrival, view))
        keys.sort(key=lambda item: item[:2])
        return referee, [view for _, _, view in keys]

    def _time(self, what: str, call: Callable[[], Any]) -> None:
        best = float("inf")
        for _ in range(5):
            before = perf_counter()
            call()
            best = min(best, 1000 * (perf_counter() - before))
        assert best <= self.decision_ms, (
            f"{what} took {best:.1f} ms, and {self.decision_ms:g} are allowed: every step waits for it. Look at each "
            "request once, and keep what does not change"
        )


def _views(count: int) -> list[RequestView]:
    """Requests of every kind: with and without tenant, session and deadline, fresh and preempted."""
    return [
        StrictView(
            SampleView(
                request_id=f"request-{i}",
                arrival=100.0 + i // 2,
                priority=(0, -3, 7, 0, 2**31 - 1)[i % 5],
                tenant=(None, "a", "b")[i % 3],
                session=(None, "s")[i % 2],
                deadline=(None, 150.0, 90.0, 1e9)[i % 4],
                prompt_tokens=1 + 37 * i % 400,
                output_tokens=i % 6,
                max_tokens=16 + 29 * i % 100,
                num_blocks=i % 7,
                preemptions=i % 3,
            )
        )
        for i in range(count)
    ]


def _longest_stay(world: World, *, steps: int) -> int:
    """The most steps that a request stays while each one that ends is followed by another of its kind."""
    kinds = [(8, 4, "crowd", 0)] * 14 + [(4, 2, "quick", -1)] * 2 + [(24, 12, "long", 1), (8, 4, None, 0)]
    kind_of = {}

    def arrive(kind: tuple[int, int, str | None, int]) -> None:
        prompt, output, tenant, priority = kind
        kind_of[world.arrive(prompt, output, tenant=tenant, priority=priority)] = kind

    for kind in kinds:
        arrive(kind)
    longest = 0
    for _ in range(steps):
        for name, stay in world.step().items():
            longest = max(longest, stay)
            arrive(kind_of.pop(name))
    return max(longest, *(world.steps - arrived for arrived in world.arrived_at.values()))


def _reachable(root: object) -> int:
    """Objects that an object keeps alive, code aside."""
    code = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
    seen: dict[int, object] = {}
    queue = [root]
    while queue:
        item = queue.pop()
        if id(item) not in seen and not isinstance(item, code):
            seen[id(item)] = item
            queue += gc.get_referents(item)
            if isinstance(item, dict):
                queue += item  # the collector leaves out keys that are strings
    return len(seen)
