"""The CPU executor under the suite that plugin authors run."""

import pytest
from corelm_cpu.plugin import create
from corelm_cpu.settings import CpuSettings

from corelm.testing import ExecutorConformance


class TestCpuExecutor(ExecutorConformance):
    settings = CpuSettings(threads=1)

    @pytest.fixture(autouse=True)
    def use_tiny_model(self, tiny_model):
        self.model = tiny_model("llama").resolved

    def make_executor(self, context):
        return create(context)


class TestBfloat16(TestCpuExecutor):
    dtype = "bfloat16"
    exact = False
