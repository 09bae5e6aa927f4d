from corelm_cache_affinity import CacheAffinity, CacheAffinitySettings
from corelm_deadline_policy import EarliestDeadlineFirst
from corelm_shortest_first import ShortestFirst

from corelm.api import SchedulingPolicy
from corelm.testing import PolicyConformance


class TestEarliestDeadlineFirst(PolicyConformance):
    starves = True  # whoever has no deadline waits for all who have one

    def make_policy(self) -> SchedulingPolicy:
        return EarliestDeadlineFirst()


class TestCacheAffinity(PolicyConformance):
    def make_policy(self) -> SchedulingPolicy:
        return CacheAffinity(CacheAffinitySettings(patience_s=2.0))


class TestShortestFirst(PolicyConformance):
    def make_policy(self) -> SchedulingPolicy:
        return ShortestFirst(tokens_per_second_waited=10.0)
