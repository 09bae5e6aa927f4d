"""Compiles the kernels with the address and undefined-behaviour sanitizers and warnings on, and checks every level.

python plugins/corelm_cpu/native/sanitize.py
"""

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from native.compile import FLAGS, LEVELS, SOURCES, compile_objects, find_compiler

SANITIZE = ("-O1", "-g", "-Wall", "-Wextra", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def main() -> int:
    """The number of levels that failed."""
    with tempfile.TemporaryDirectory() as folder:
        objects = map(str, compile_objects(Path(folder), SANITIZE))
        program = str(Path(folder) / "check")
        command = [*find_compiler(), *FLAGS, *SANITIZE, str(SOURCES / "check.cpp"), *objects, "-o", program, "-ldl"]
        subprocess.run(command, check=True)
        names = [level.replace("_", "-") for level in LEVELS]
        return sum(subprocess.run([program, name], check=False).returncode != 0 for name in names)


if __name__ == "__main__":
    sys.exit(main())
