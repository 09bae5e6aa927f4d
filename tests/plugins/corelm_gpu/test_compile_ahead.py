"""Every kernel compiles for devices that are not here."""

import os
import subprocess
import sys

import pytest

TARGETS = ["sm_80", "sm_90", "gfx942"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """What each kernel takes, by column: compiled anew, all targets at once as that keeps all cores busy."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    done = subprocess.run(
        [sys.executable, "-m", "corelm_gpu.compile_ahead", *TARGETS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    head, _, *lines = (line.strip("| ").split(" | ") for line in done.stdout.splitlines())
    return [dict(zip(head, line, strict=True)) for line in lines]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_compiles(table, target):
    kernels = {row["kernel"] for row in table if row["target"] == target}
    assert kernels == {row["kernel"] for row in table}
    assert {"decode", "join", "prefill", "rotate_write", "quantised_linear", "dequantise", "sample"} <= kernels


def test_fp8_is_compiled_where_there_is_such_a_type(table):
    assert {row["target"] for row in table if "fp8" in row["case"]} == {"sm_90"}


def test_attention_stays_in_registers(table):
    rows = [row for row in table if row["target"] == "sm_90" and row["kernel"] in ("decode", "prefill")]
    assert [row for row in rows if row["spilled"] != "0"] == []
