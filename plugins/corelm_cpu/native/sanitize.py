"""Compiles the kernels with sanitizers and warnings on, and checks every level.

Attention, linear layers and models run under the address and undefined-behaviour sanitizers, the pool of threads under
that for threads.

python plugins/corelm_cpu/native/sanitize.py
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from native.compile import FLAGS, LEVELS, SOURCES, compile_objects, find_compiler

CHECKED = ("-O1", "-g", "-Wall", "-Wextra", "-fno-sanitize-recover=all")
SANITIZE = (*CHECKED, "-fsanitize=address,undefined")
SANITIZE_THREADS = (*CHECKED, "-fsanitize=thread")


def main() -> int:
    """The number of checks that failed."""
    names = [level.replace("_", "-") for level in LEVELS]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        objects = list(map(str, compile_objects(folder, SANITIZE)))
        runs = [[link(folder, "check_pool", SANITIZE_THREADS, [str(SOURCES / "pool.cpp")])]]
        for check in ("check", "check_model"):
            program = link(folder, check, SANITIZE, objects)
            runs += [[program, name] for name in names]
        return sum(subprocess.run(run, check=False).returncode != 0 for run in runs)


def link(folder: Path, check: str, flags: Sequence[str], others: Sequence[str]) -> str:
    """Make the program `check` of its source and `others`; its path."""
    program = str(folder / check)
    source = str(SOURCES / f"{check}.cpp")
    subprocess.run([*find_compiler(), *FLAGS, *flags, source, *others, "-o", program, "-ldl", "-lpthread"], check=True)
    return program


if __name__ == "__main__":
    sys.exit(main())
