"""The check for machines with a GPU, without one: what it reports, what it survives, and every part in small."""

import json
import os
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = "machine,agreement,attention,steps,engine,kernels,steps without graphs"
"""All but those that run tests."""

FAKE_PART = """
import sys, time
from pathlib import Path
sys.path.insert(0, {here!r})
from record import Record
name, path = sys.argv[1:3]
Record(Path(path), name).add("first", "1 ms", share=0.7, target=0.8)
if name == "hangs":
    time.sleep(600)
if name == "breaks":
    raise SystemExit("no such device")
"""


@pytest.fixture
def check(monkeypatch):
    """The modules of the check, which import each other as scripts do."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield import_module("gpu_check")
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(ROOT / "benchmarks")):
            del sys.modules[name]


def test_parts_end_one_by_one_whatever_the_others_do(check, monkeypatch, tmp_path, capsys):
    (tmp_path / "part.py").write_text(FAKE_PART.format(here=str(check.HERE)))
    monkeypatch.setattr(check, "HERE", tmp_path)
    part = type(check.PARTS["machine"])
    limits = {"breaks": 60, "hangs": 3, "works": 60}
    monkeypatch.setattr(check, "PARTS", {name: part("nothing", limit) for name, limit in limits.items()})
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--out", str(tmp_path / "out"), "--only", ",".join(limits)])
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with pytest.raises(SystemExit) as ended:
        check.main()
    assert ended.value.code
    lines = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [line["outcome"] for line in lines if "outcome" in line] == ["failed (1)", "stopped after 3 s", "done"]
    assert [line["part"] for line in lines if line.get("case") == "first"] == list(limits)
    shown = capsys.readouterr().out
    assert "no such device" in shown
    assert "| works | first | 1 ms | 70% (!) | 80% |" in shown


def test_a_machine_without_packages_gets_those_that_were_carried(tmp_path):
    pack, target = tmp_path / "pack", tmp_path / "site"
    pack.mkdir()
    target.mkdir()
    (pack / "python").write_text(f"{sys.version_info.major}.{sys.version_info.minor}")
    with zipfile.ZipFile(pack / "carried-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("carried.py", "ANSWER = 42")
    carry = [sys.executable, ROOT / "benchmarks/gpu/carry.py", "site", pack, target]
    path = subprocess.run(carry, capture_output=True, text=True, check=True).stdout.strip()
    found = subprocess.run(
        [
            sys.executable,
            *("-I", "-S", "-c"),
            "import sys; sys.path += sys.argv[1].split(':'); import carried, importlib.metadata as metadata;"
            "print(carried.ANSWER, *sorted(point.name for point in metadata.entry_points(group='corelm')))",
            path,
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert found[0] == "42"
    assert {"gpu", "torch", "fcfs", "random_models"} <= set(found[1:])


@pytest.mark.timeout(300)
def test_every_part_that_measures_runs_without_a_gpu(tmp_path):
    environment = os.environ | {"OUT": str(tmp_path / "out"), "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [ROOT / "benchmarks/gpu_check.sh", "--dry-run", "--only", PARTS],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [line["part"] for line in lines if line.get("outcome") == "done"] == PARTS.split(",")
    kernels = next(line for line in lines if line.get("case", "").startswith("kernels of a step"))["kernels"]
    assert len(kernels) == 10
