"""The CPU executor under the suite that plugin authors run."""

import pytest
from corelm_cpu.plugin import create
from corelm_cpu.settings import CpuSettings
from msgspec.structs import replace

from corelm.testing import ExecutorConformance


class TestCpuExecutor(ExecutorConformance):
    settings = CpuSettings(threads=1)

    @pytest.fixture(autouse=True)
    def use_tiny_model(self, tiny_model):
        self.model = tiny_model("llama").resolved

    def make_executor(self, context):
        return create(context)


class TestTorch(TestCpuExecutor):
    settings = CpuSettings(threads=1, kernels="torch")


class TestTorchBfloat16(TestTorch):
    dtype = "bfloat16"
    exact = False


@pytest.mark.parametrize(
    ("lost", "check"),
    [
        ({"top_k": -1}, "test_top_k"),
        ({"top_p": 1.0}, "test_top_p"),
        ({"min_p": 0.0}, "test_min_p"),
        ({"temperature": 1.0}, "test_temperature"),
    ],
)
def test_an_executor_that_ignores_a_parameter_is_found(tiny_model, lost, check):
    class Deaf(type(create(ExecutorConformance().context()))):
        def execute(self, plan):
            started = [replace(start, sampling=replace(start.sampling, **lost)) for start in plan.started]
            return super().execute(replace(plan, started=tuple(started)))

    class Suite(TestCpuExecutor):
        model = tiny_model("llama").resolved

        def make_executor(self, context):
            return Deaf(context)

    with pytest.raises(AssertionError):
        getattr(Suite(), check)()
