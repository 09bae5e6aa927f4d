"""What the machine, affinity and control groups allow."""

import os
from pathlib import Path

import psutil
import pytest
from corelm_cpu import resources
from corelm_torch.sizing import choose_num_blocks

from corelm.api import ExecutorContext, ModelLoadError, ResolvedModel


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A machine with 64 CPUs and 100 bytes free."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)

    class Memory:
        available = 100

    monkeypatch.setattr(psutil, "virtual_memory", Memory)


@pytest.fixture
def groups(tmp_path):
    """Write a control-group tree; returns the arguments of the functions under test."""

    def write(membership: str, files: dict[str, str]) -> tuple[Path, Path]:
        root, process = tmp_path / "cgroup", tmp_path / "process"
        process.write_text(membership)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return root, process

    return write


@pytest.mark.parametrize(
    ("membership", "files", "cpus"),
    [
        ("0::/\n", {}, 64),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 64),
        ("0::/\n", {"cpu.max": "250000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        (
            "0::/pod/box\n",
            {"cpu.max": "max 1", "pod/cpu.max": "300000 100000", "pod/box/cpu.max": "max 100000"},
            3,
        ),
        ("4:cpu,cpuacct:/box\n", {"cpu/box/cpu.cfs_quota_us": "400000", "cpu/box/cpu.cfs_period_us": "100000"}, 4),
        ("4:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 64),
    ],
)
def test_usable_cpus(groups, membership, files, cpus):
    assert resources.usable_cpus(*groups(membership, files)) == cpus


@pytest.mark.parametrize(
    ("membership", "files", "available"),
    [
        ("0::/\n", {}, 100),
        ("0::/\n", {"memory.max": "max", "memory.current": "9"}, 100),
        ("0::/\n", {"memory.max": "80", "memory.current": "30"}, 50),
        ("0::/\n", {"memory.max": "80", "memory.current": "30", "memory.stat": "anon 5\ninactive_file 20\n"}, 70),
        ("0::/\n", {"memory.max": "80", "memory.current": "90"}, 0),
        ("0::/a/b\n", {"a/memory.max": "60", "a/memory.current": "20", "a/b/memory.max": "max"}, 40),
        ("9:memory:/a\n", {"memory/a/memory.limit_in_bytes": "60", "memory/a/memory.usage_in_bytes": "20"}, 40),
    ],
)
def test_available_memory(groups, membership, files, available):
    assert resources.available_memory(*groups(membership, files)) == available


BLOCK = 1024
"""Bytes."""


def num_blocks(available: int, **options: int) -> int:
    context = ExecutorContext(
        model=ResolvedModel(name="m", path=Path(), format="gguf"),
        settings=None,
        max_num_batched_tokens=1,
        **{"max_num_seqs": 1000} | options,
    )
    return choose_num_blocks(
        context,
        block_bytes=BLOCK,
        max_model_len=100,
        weight_bytes=1000,
        swap_bytes=context.swap_tokens // 16 * BLOCK,
        available=available,
        memory_fraction=0.5,
    )


def test_kv_cache_takes_its_share_of_what_the_weights_leave():
    assert num_blocks(1000 + 20 * BLOCK) == 10


def test_kv_cache_is_no_larger_than_can_be_used():
    assert num_blocks(1000 + 10**9, max_num_seqs=3) == 3 * 7


def test_kv_cache_of_a_given_size():
    assert num_blocks(1000 + 20 * BLOCK, kv_cache_tokens=19 * 16) == 19
    assert num_blocks(1000 + 20 * BLOCK, kv_cache_tokens=1) == 1


def test_swap_space_leaves_less_for_the_kv_cache():
    assert num_blocks(1000 + 20 * BLOCK, swap_tokens=6 * 16) == 7
    assert num_blocks(1000 + 20 * BLOCK, swap_tokens=6 * 16, kv_cache_tokens=14 * 16) == 14


@pytest.mark.parametrize(
    ("available", "options"),
    [
        (999, {}),
        (1000, {}),
        (1000 + 5 * BLOCK, {"kv_cache_tokens": 96}),
        (1000 + 5 * BLOCK, {"swap_tokens": 80}),
        (1000 + 20 * BLOCK, {"kv_cache_tokens": 15 * 16, "swap_tokens": 6 * 16}),
    ],
)
def test_what_does_not_fit_is_refused(available, options):
    with pytest.raises(ModelLoadError, match="only"):
        num_blocks(available, **options)
