"""Requests as policies see them, and an engine in thirty lines to run a policy in."""

from collections import Counter
from dataclasses import dataclass

import pytest

from corelm.api import ServedTokens


@dataclass(eq=False)
class View:
    request_id: str
    arrival: float = 0.0
    tenant: str | None = None
    priority: int = 0
    prompt_tokens: int = 8
    cached_prefix_tokens: int = 0
    max_tokens: int = 8
    output_tokens: int = 0
    num_blocks: int = 0
    preemptions: int = 0
    session: str | None = None
    deadline: float | None = None


@pytest.fixture(scope="session")
def view():
    return View


def _plan(running, waiting, policy, step, slots, budget, capacity):
    """Tokens to compute by request: running ones decode, then read on; then others are admitted in order."""
    plan = {}
    for request, left in sorted(running.items(), key=lambda item: item[1] > 1):
        plan[request] = min(left, budget)
        budget -= plan[request]
    by_id = {request.request_id: request for request in waiting}
    for request_id in policy.order(list(waiting), float(step)):
        request = by_id[request_id]
        held = sum(other.prompt_tokens + other.max_tokens for other in [*running, request])
        if not budget or len(running) == slots or held > capacity:
            break
        waiting.remove(request)
        running[request] = request.prompt_tokens
        plan[request] = min(request.prompt_tokens, budget)
        budget -= plan[request]
    return plan


def _simulate(policy, arrivals, *, steps, slots=4, budget=16, capacity=64):
    """Weighted work (1 per prompt token, 2 per output token) by tenant, accumulated to the end of each step.

    `arrivals(step, waiting)` returns the new requests of a step. No more than `slots` requests run at once, with no
    more than `capacity` tokens, of which no more than `budget` are computed in one step.
    """
    running, keys, waiting, total, history = {}, {}, [], Counter(), []
    for step in range(steps):
        new = arrivals(step, waiting)
        keys |= {request: policy.key(request) for request in new}
        waiting = sorted([*waiting, *new], key=lambda request: (keys[request], request.arrival))
        work = []
        for request, tokens in _plan(running, waiting, policy, step, slots, budget, capacity).items():
            running[request] -= tokens
            prompt, output = (tokens if not request.output_tokens else 0), int(not running[request])
            running[request] += output
            request.output_tokens += output
            work.append(ServedTokens(request, prompt, output))
            total[request.tenant] += prompt + 2 * output
            if request.output_tokens == request.max_tokens:
                del running[request]
        policy.served(work)
        history.append(Counter(total))
    return history


@pytest.fixture(scope="session")
def simulate():
    return _simulate
