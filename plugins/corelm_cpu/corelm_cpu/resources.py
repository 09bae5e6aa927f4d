"""What this process may use of the machine: CPUs and memory, within affinity and control groups."""

import os
from pathlib import Path

import psutil

CGROUP_ROOT = Path("/sys/fs/cgroup")
PROCESS_CGROUP = Path("/proc/self/cgroup")


def usable_cpus(root: Path = CGROUP_ROOT, process: Path = PROCESS_CGROUP) -> int:
    """CPUs of the affinity mask, or fewer where a control group's quota allows less."""
    allowed = affinity_cpus()
    for folder in _cgroups(root, process, "cpu"):
        quota, period = [*_read(folder / "cpu.max").split(), "", ""][:2]
        if not quota:
            quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit():
            allowed = min(allowed, max(int(quota) // int(period), 1))
    return allowed


def affinity_cpus() -> int:
    """CPUs of the affinity mask, where there is one; else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory(root: Path = CGROUP_ROOT, process: Path = PROCESS_CGROUP) -> int:
    """Bytes that can still be allocated: what the machine has free, or less where a control group limits it."""
    available = int(psutil.virtual_memory().available)
    for folder in _cgroups(root, process, "memory"):
        limit = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")
        usage = _read(folder / "memory.current") or _read(folder / "memory.usage_in_bytes")
        if limit.isdigit() and usage.isdigit():
            available = min(available, max(int(limit) - int(usage) + _page_cache(folder), 0))
    return available


def _cgroups(root: Path, process: Path, controller: str) -> list[Path]:
    """Every control group this process is in that may limit `controller`, version 2 or 1, the innermost first."""
    folders = []
    for line in _read(process).splitlines():
        _, controllers, path = line.split(":", 2)
        base = root if not controllers else root / controller
        if not controllers or controller in controllers.split(","):
            inner = base / path.strip("/")
            folders += [inner, *(parent for parent in inner.parents if parent.is_relative_to(base))]
    return folders


def _page_cache(folder: Path) -> int:
    """Bytes counted as used by the group that the kernel gives back on demand."""
    for line in _read(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in {"inactive_file", "total_inactive_file"} and value.isdigit():
            return int(value)
    return 0


def _read(path: Path) -> str:
    """The text of a file, empty if there is none."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
