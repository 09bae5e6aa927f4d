"""The levels of the native kernels, the best last, and those that this machine can run."""

import pytest
from corelm_cpu.kernels import KernelsMissing, kernels_name

LEVELS = ("portable", "avx2", "avx2-vnni", "avx512-vnni", "avx512-bf16", "amx")


def available() -> list[str]:
    """By name, the best last; empty if there are no kernels."""
    found = []
    for level in LEVELS:
        try:
            found.append(kernels_name(level))
        except KernelsMissing:
            continue
    return found


AVAILABLE = available()
every_level = pytest.mark.parametrize("level", AVAILABLE)
needs_kernels = pytest.mark.skipif(not AVAILABLE, reason="the kernels were not built")
