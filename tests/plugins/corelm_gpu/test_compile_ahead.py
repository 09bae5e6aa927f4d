"""Every kernel compiles for devices that are not here."""

import os
import subprocess
import sys

import pytest

TARGETS = ["sm_80", "sm_90", "gfx942"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_compiles(target, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "corelm_gpu.compile_ahead", target],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()[2:]
    assert len(lines) >= 12
    spilled = [line for line in lines if "_attention" in line and line.split("|")[5].strip() not in ("0", "-")]
    assert target != "sm_90" or not spilled
