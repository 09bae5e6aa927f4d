"""Policies with one fault each."""

import random
from time import sleep

from corelm.api import SchedulingPolicy


class ReadsTheScheduler(SchedulingPolicy):
    def key(self, request):
        return len(request._sequence.token_ids)


class MarksRequests(SchedulingPolicy):
    def victim(self, running, now):
        running[0].preemptions += 1
        return running[0].request_id


class HasNoKeyForSome(SchedulingPolicy):
    def key(self, request):
        return request.deadline


class HasKeysOfNoOrder(SchedulingPolicy):
    def key(self, request):
        return float("nan") if request.deadline is None else request.deadline


class CountsItsCalls(SchedulingPolicy):
    calls = 0

    def key(self, request):
        self.calls += 1
        return self.calls


class OrdersStrangers(SchedulingPolicy):
    def order(self, waiting, now):
        return ["nobody", *super().order(waiting, now)]


class OrdersTwice(SchedulingPolicy):
    def order(self, waiting, now):
        return [*super().order(waiting, now), waiting[0].request_id]


class OrdersViews(SchedulingPolicy):
    def order(self, waiting, now):
        return waiting


class SortsInPlace(SchedulingPolicy):
    def order(self, waiting, now):
        waiting.sort(key=lambda request: request.max_tokens)
        return super().order(waiting, now)


class EndsTheDead(SchedulingPolicy):
    def victim(self, running, now):
        return "nobody"


class TakesTheListApart(SchedulingPolicy):
    def victim(self, running, now):
        return running.pop().request_id


class SwapsPerhaps(SchedulingPolicy):
    def swap(self, request):
        return None


class RaisesForStrangers(SchedulingPolicy):
    """Believes that it hears of every request before it is served."""

    def __init__(self):
        self.tenants = {"a": 0}

    def served(self, work):
        for request, _, output_tokens in work:
            self.tenants[request.tenant] += output_tokens


class ForgetsTheLong(SchedulingPolicy):
    def order(self, waiting, now):
        return [request.request_id for request in waiting if request.prompt_tokens < 20]


class LastInFirstOut(SchedulingPolicy):
    def key(self, request):
        return -request.arrival


class StrictPriority(SchedulingPolicy):
    def key(self, request):
        return request.priority


class Chance(SchedulingPolicy):
    def order(self, waiting, now):
        names = list(super().order(waiting, now))
        random.shuffle(names)
        return names


class RemembersEverybody(SchedulingPolicy):
    def __init__(self):
        self.seen = {}

    def key(self, request):
        self.seen[request.request_id] = request.arrival
        return request.arrival


class ComparesAllWithAll(SchedulingPolicy):
    def order(self, waiting, now):
        before = {view: sum(other.arrival < view.arrival for other in waiting[:100]) for view in waiting}
        return [view.request_id for view in sorted(waiting, key=before.__getitem__)]


class AsksTheNetwork(SchedulingPolicy):
    def victim(self, running, now):
        sleep(0.03)
        return running[-1].request_id
