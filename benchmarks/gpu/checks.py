"""The tests of the executor and its kernels, on the device."""

import os
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from clock import CUDA

ROOT = Path(__file__).resolve().parents[2]
TESTS = "tests/plugins/corelm_gpu"
NOT_HERE = (
    "test_compile_ahead.py",
    "test_gpu_memory.py::test_a_cache_that_does_not_fit_is_refused_with_numbers",
    "test_transformers_on_gpu.py::test_greedy_outputs_are_those_of_transformers[gptj]",
)
"""Of compilers for other devices, of the interpreter's memory, and of what older releases of transformers cannot do."""
FEW = "test_mask or test_norm or transformers"
"""Without a device the tests say nothing new: the test suite runs them in the interpreter, too."""
WORKERS = 12


def measure(bench, record):
    """Run them, and count for each file; raises `RuntimeError` if any failed."""
    report = record.beside("tests.xml")
    plugins = ["asyncio", "timeout", *(["xdist"] if CUDA and find_spec("xdist") else [])]
    options = [option for plugin in plugins for option in ("-p", plugin)]
    options += ["-n", str(WORKERS), "--dist", "worksteal"] if "xdist" in plugins else []
    options += [] if CUDA else ["-k", FEW]
    options += [f"--deselect={TESTS}/{name}" for name in NOT_HERE]
    # Warnings are of other versions of PyTorch than those that are tested.
    options += [
        "-v",
        "--tb=short",
        "--continue-on-collection-errors",
        "-o",
        "filterwarnings=default",
        "-p",
        "no:cacheprovider",
        f"--junit-xml={report}",
    ]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run([sys.executable, "-m", "pytest", *options, TESTS], cwd=ROOT, env=environment, check=False)
    failed = []
    counts = {}
    for case in ElementTree.parse(report).iter("testcase"):
        outcome = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
        name = case.get("classname", "").rpartition("test_")[2] or case.get("name", "")
        counts.setdefault(name.split(".")[0], Counter())[outcome] += 1
        if outcome in ("failure", "error"):
            failed.append(f"{case.get('classname')}.{case.get('name')}")
    for name, outcomes in counts.items():
        record.add(name.replace("_", " "), ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()))
    if failed or not counts:
        raise RuntimeError(f"{len(failed)} of the tests failed: {', '.join(failed)}")
