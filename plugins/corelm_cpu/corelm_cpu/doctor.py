"""What ``corelm doctor`` says about the CPU executor. Imports no torch."""

import platform
from collections.abc import Iterator
from pathlib import Path

from corelm.api import Finding
from corelm_cpu.kernels import KernelsMissing, kernels_name
from corelm_cpu.resources import affinity_cpus, available_memory, usable_cpus
from corelm_cpu.settings import CpuSettings

AVX2 = ("avx2", "fma", "f16c")
AVX512 = (*AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni")
BF16 = (*AVX512, "avx512_bf16")
LEVELS = {
    "amx": (*BF16, "amx_tile", "amx_bf16", "amx_int8"),
    "avx512-bf16": BF16,
    "avx512-vnni": AVX512,
    "avx2-vnni": (*AVX2, "avx_vnni"),
    "avx2": AVX2,
    "portable": (),
}
"""Kernels by level, the best first, with the CPU's abilities that they need, named as in /proc/cpuinfo."""
CPUINFO = Path("/proc/cpuinfo")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
REBUILD = "build corelm-cpu anew: pip install --force-reinstall --no-deps --no-cache-dir corelm-cpu"


def findings(settings: CpuSettings) -> Iterator[Finding]:
    """Which kernels run, how many threads, how much memory."""
    yield from _kernels(settings)
    yield _threads(settings)
    yield Finding(level="ok", text=f"memory: {available_memory() / 2**30:.1f} GiB available")
    yield from _huge_pages()


def _kernels(settings: CpuSettings) -> Iterator[Finding]:
    if settings.kernels == "torch":
        yield Finding(level="note", text="PyTorch computes everything: cpu.kernels is torch")
        return
    try:
        chosen = kernels_name()
    except KernelsMissing as reason:
        text = f"PyTorch computes everything, more slowly, as there are no native kernels: {reason}"
        yield Finding(level="problem", text=text, remedy=f"install a C++ compiler (g++ or clang++), then {REBUILD}")
        return
    yield Finding(level="ok", text=f"kernels {chosen}: chosen")
    yield from (_level(level) for level in LEVELS if level != chosen)


def _level(level: str) -> Finding:
    """Whether and why not the kernels of a level that was not chosen could run."""
    try:
        return Finding(level="ok", text=f"kernels {kernels_name(level)}: can run")
    except KernelsMissing:
        text = f"kernels {level}: cannot run"
    abilities = _cpu_abilities()
    lacking = [ability for ability in LEVELS[level] if ability not in abilities]
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        return Finding(level="note", text=f"{text}, as they are for x86-64")
    if not abilities:
        return Finding(level="note", text=text)
    if lacking:
        return Finding(level="note", text=f"{text}, as the CPU lacks {', '.join(lacking)}")
    text += ", though the CPU could: the compiler did not know them, or the operating system forbids them"
    return Finding(level="note", text=text, remedy=f"with a newer C++ compiler, {REBUILD}")


def _cpu_abilities() -> set[str]:
    """Those of the first CPU; empty where the operating system does not tell."""
    lines = CPUINFO.read_text().splitlines() if CPUINFO.exists() else []
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())


def _threads(settings: CpuSettings) -> Finding:
    allowed, usable = affinity_cpus(), usable_cpus()
    if settings.threads is not None:
        text = f"threads: {settings.threads}, as cpu.threads says; this process may use {usable} CPUs"
        if settings.threads > usable:
            return Finding(level="problem", text=text, remedy=f"set CORELM_CPU_THREADS to at most {usable}")
        return Finding(level="ok", text=text)
    if usable < allowed:
        return Finding(level="ok", text=f"threads: {usable}, what a control group's quota leaves of {allowed} CPUs")
    return Finding(level="ok", text=f"threads: {usable}, one for each CPU of the affinity mask")


def _huge_pages() -> Iterator[Finding]:
    """The mode in brackets is in force, as in ``always [madvise] never``. Says nothing where there are none."""
    if not HUGE_PAGES.exists():
        return
    mode = HUGE_PAGES.read_text().partition("[")[2].partition("]")[0]
    text = f"transparent huge pages: {mode}"
    if mode == "never":
        remedy = f"as root: echo madvise > {HUGE_PAGES}"
        yield Finding(level="note", text=f"{text}, so that weights are read more slowly", remedy=remedy)
    else:
        yield Finding(level="ok", text=text)
