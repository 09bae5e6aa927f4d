"""What the fair policy promises about the work that tenants are given, in a small simulated engine."""

from collections import Counter
from itertools import count, cycle

import pytest
from corelm_fcfs import FCFS, Fair, FairSettings
from hypothesis import given, settings
from hypothesis import strategies as st


def always(view, sizes, waiting_each=7):
    """Arrivals that keep more requests of every tenant waiting than one step can admit.

    `sizes`: prompt and output lengths by tenant.
    """
    ids, lengths = count(), {tenant: cycle(pairs) for tenant, pairs in sizes.items()}

    def arrivals(step, waiting):
        present = Counter(request.tenant for request in waiting)
        return [
            view(str(next(ids)), float(step), tenant, prompt_tokens=prompt, max_tokens=output)
            for tenant, source in lengths.items()
            for _ in range(waiting_each - present[tenant])
            for prompt, output in [next(source)]
        ]

    return arrivals


def at_rates(view, rates, prompt_tokens=8, max_tokens=8):
    """Arrivals of so many requests of each tenant per step, which may be a fraction."""
    ids = count()

    def arrivals(step, waiting):
        return [
            view(str(next(ids)), float(step), tenant, prompt_tokens=prompt_tokens, max_tokens=max_tokens)
            for tenant, rate in rates.items()
            for _ in range(int((step + 1) * rate) - int(step * rate))
        ]

    return arrivals


def gaps(history, a, b):
    return [total[a] - total[b] for total in history]


LENGTHS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=5)


@settings(deadline=None, max_examples=60)
@given(a=LENGTHS, b=LENGTHS, slots=st.integers(1, 6), budget=st.integers(6, 24), weight=st.integers(1, 3))
def test_two_tenants_that_always_wait_get_the_same_within_the_bound_of_the_paper(
    view, simulate, a, b, slots, budget, weight
):
    policy = Fair(FairSettings(weights={"a": float(weight)}))
    capacity = 48
    history = simulate(policy, always(view, {"a": a, "b": b}), steps=200, slots=slots, budget=budget, capacity=capacity)
    longest = max(prompt for prompt, _ in a + b)
    most = min(capacity, slots * max(map(sum, a + b)))
    gap = [total["a"] / weight - total["b"] for total in history]
    # Over any stretch of time the difference of what they got is a difference between two of these gaps.
    assert max(gap) - min(gap) <= 2 * max(1.0 * longest, 2.0 * most)


@pytest.mark.parametrize("weights", [{}, {"a": 2.0}, {"a": 0.5, "b": 1.5}])
def test_work_is_shared_by_weight(view, simulate, weights):
    sizes = {"a": [(8, 8)], "b": [(3, 12), (12, 2)], "c": [(1, 3)]}
    total = simulate(Fair(FairSettings(weights=weights)), always(view, sizes), steps=1500)[-1]
    shares = {tenant: total[tenant] / weights.get(tenant, 1.0) for tenant in sizes}
    assert max(shares.values()) == pytest.approx(min(shares.values()), rel=0.05)


def test_ten_times_the_requests_do_not_get_more_work(view, simulate):
    def run(policy):
        return gaps(simulate(policy, at_rates(view, {"loud": 3.0, "quiet": 0.3}), steps=600), "loud", "quiet")

    fair, fcfs = run(Fair(FairSettings())), run(FCFS())
    assert max(fair) - min(fair) <= 2 * 2.0 * 64
    assert fcfs[299] > 5 * max(fair)
    assert fcfs[599] > 1.8 * fcfs[299]


def test_who_asks_for_less_than_its_share_gets_all_of_it(view, simulate):
    rate = 0.05
    history = simulate(Fair(FairSettings()), at_rates(view, {"loud": 3.0, "quiet": rate}), steps=600)
    asked = int(560 * rate) * (8 + 2 * 8)
    assert history[-1]["quiet"] >= asked


def test_the_idle_save_nothing_up(view, simulate):
    """A tenant that comes after the others had the engine for themselves does not displace them."""
    loud = at_rates(view, {"loud": 3.0})
    late = at_rates(view, {"late": 3.0})

    def arrivals(step, waiting):
        new = late(step, waiting) if step >= 400 else []
        for request in new:
            request.request_id = f"late {request.request_id}"
        return [*loud(step, waiting), *new]

    history = simulate(Fair(FairSettings()), arrivals, steps=500)
    before = history[399]
    assert not before["late"]
    assert history[-1]["late"] == pytest.approx(history[-1]["loud"] - before["loud"], abs=2 * 2 * 64)


def test_nobody_starves_among_many(view, simulate):
    rates = {f"tenant {i}": 0.2 + i for i in range(8)}
    history = simulate(Fair(FairSettings()), at_rates(view, rates), steps=300)
    for before, after in zip(history[99::50], history[149::50], strict=False):
        assert all(after[tenant] > before[tenant] for tenant in rates)
