"""The parts of the check, the most telling ones first."""

from typing import NamedTuple


class Part(NamedTuple):
    """One part."""

    code: str
    """Module and function."""
    limit_s: int


PARTS = {
    "machine": Part("machine.measure", 60),
    "tests": Part("checks.measure", 150),
    "agreement": Part("agreement.measure", 60),
    "attention": Part("attention.measure", 90),
    "steps": Part("steps.measure", 120),
    "engine": Part("engine.measure", 120),
    "kernels": Part("kernels.measure", 90),
    "steps without graphs": Part("steps.measure_without_graphs", 90),
}
