"""The policies under the suite that plugin authors run."""

from corelm_fcfs import FCFS, Fair, FairSettings, Priority

from corelm.testing import PolicyConformance


class TestFCFS(PolicyConformance):
    def make_policy(self):
        return FCFS()


class TestPriority(PolicyConformance):
    starves = True

    def make_policy(self):
        return Priority()


class TestAgeing(PolicyConformance):
    def make_policy(self):
        return Priority(ageing_s=2.0)


class TestFair(PolicyConformance):
    def make_policy(self):
        return Fair(FairSettings(weights={"a": 2.0}))
