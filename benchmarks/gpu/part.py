"""One part of the check, in a process of its own: ``python benchmarks/gpu/part.py NAME FILE [--tiny]``."""

import sys
from importlib import import_module
from pathlib import Path

from bench import Bench
from parts import PARTS
from record import Record
from sizes import REAL, TINY

if __name__ == "__main__":
    name, path, *flags = sys.argv[1:]
    module, function = PARTS[name].code.split(".")
    measure = getattr(import_module(module), function)
    measure(Bench(TINY if flags else REAL), Record(Path(path), name))
