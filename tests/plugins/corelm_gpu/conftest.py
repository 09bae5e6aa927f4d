"""Fixtures of the GPU executor's tests, and the interpreter that they run in where there is no GPU."""

import pytest
import quick_interpreter
import triton
from gpu_tiny import save_tiny_llama

if triton.knobs.runtime.interpret:
    quick_interpreter.install()


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory):
    return save_tiny_llama(tmp_path_factory.mktemp("tiny_llama"))
