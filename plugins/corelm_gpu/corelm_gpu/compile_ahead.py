"""Compiles every kernel for devices that need not be here: ``python -m corelm_gpu.compile_ahead sm_90``.

Prints a table of what each takes, read from the compiled objects. ``--full`` takes every combination of sizes.
"""

import argparse
import multiprocessing
import os
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from itertools import islice

from triton.backends.compiler import GPUTarget

from corelm_gpu.kernel_cases import Cases, cases
from corelm_gpu.kernel_usage import Usage, usage

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_89": GPUTarget("cuda", 89, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
FP8 = ("sm_89", "sm_90")
"""Targets that have the type float8_e4m3fn."""


def main() -> None:
    """Compile everything for the targets named on the command line. Exits with 1 if something does not compile."""
    parser = argparse.ArgumentParser(description="Compile every kernel for devices that need not be here.")
    parser.add_argument("targets", nargs="+", choices=TARGETS)
    parser.add_argument("--full", action="store_true", help="every combination of sizes")
    options = parser.parse_args()
    print("| target | kernel | case | warps | registers | shared memory | spilled |")
    print("|---|---|---|--:|--:|--:|--:|")
    failures = 0
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn")) as pool:
        lines = [
            pool.submit(compile_case, target, number, full=options.full)
            for target in options.targets
            for number, _ in enumerate(_cases(target, full=options.full))
        ]
        for line in lines:
            if (error := line.exception()) is None:
                print(line.result(), flush=True)
            else:
                traceback.print_exception(error)
                failures += 1
    sys.exit(1 if failures else 0)


def compile_case(target: str, number: int, *, full: bool) -> str:
    """Compile the case of that number, and give its line of the table."""
    case, launch = next(islice(_cases(target, full=full), number, None))
    name = launch.kernel.__name__.strip("_")
    try:
        taken: Usage = usage(launch.compile(TARGETS[target]), TARGETS[target])
    except Exception as error:
        error.add_note(f"in {name} for {target}: {case}")
        raise
    figures = (launch.num_warps, *taken)
    return f"| {target} | {name} | {case} | {' | '.join(map(str, figures))} |"


def _cases(target: str, *, full: bool) -> Cases:
    return cases(full=full, fp8=target in FP8)


if __name__ == "__main__":
    main()
