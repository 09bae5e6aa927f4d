"""Registers the executor "cpu"."""

from collections.abc import Iterable, Mapping

from corelm.api import Executor, ExecutorContext, Finding, Register, hookimpl
from corelm_cpu.settings import CpuSettings


def create(context: ExecutorContext) -> Executor:
    """Make a CPU executor. Imports torch, so it takes seconds."""
    from corelm_cpu.executor import CpuExecutor

    return CpuExecutor(context)


@hookimpl
def corelm_register_executors(register: Register[ExecutorContext, Executor]) -> None:
    register("cpu", create, settings=CpuSettings, summary="Runs Llama-family models on CPUs, in bfloat16 or float32.")


@hookimpl
def corelm_diagnose(settings: Mapping[str, CpuSettings]) -> Iterable[Finding]:
    from corelm_cpu.doctor import findings

    return findings(settings.get("cpu", CpuSettings()))
