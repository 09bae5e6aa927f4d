"""Compiles every kernel for devices that need not be here: ``python -m corelm_gpu.compile_ahead sm_90``.

Prints a table of what each takes, read from the compiled objects. ``--full`` takes every combination of sizes.
"""

import argparse
import multiprocessing
import os
import sys
import traceback
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice

import torch
from triton.backends.compiler import GPUTarget

from corelm_gpu.kernel_cases import cases
from corelm_gpu.kernel_usage import usage
from corelm_gpu.kernels.launch import Launch

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
    print(f"| kernel | case | warps | {' | '.join(options.targets)} |")
    print("|---|---|--:|" + "--:|" * len(options.targets))
    complete = True
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn")) as pool:
        rows = [
            (case, launch, [pool.submit(compile_case, number, target, options.full) for target in options.targets])
            for number, (case, launch) in enumerate(cases(full=options.full))
        ]
        for case, launch, figures in rows:
            row = (_name(launch), case, str(launch.num_warps), *map(_figure, figures))
            print(f"| {' | '.join(row)} |", flush=True)
            complete = complete and all(figure.exception() is None for figure in figures)
    sys.exit(0 if complete else 1)


def compile_case(number: int, target: str, full: bool) -> str:
    """Compile the case of that number, and say what it takes: registers, bytes of shared memory, and what spilled."""
    case, launch = next(islice(cases(full=full), number, None))
    if target not in FP8 and _has_fp8(launch):
        return ""
    try:
        taken = usage(launch.compile(TARGETS[target]), TARGETS[target])
    except Exception as error:
        error.add_note(f"in {_name(launch)} for {target}: {case}")
        raise
    return " / ".join(map(str, taken))


def _name(launch: Launch) -> str:
    return str(launch.kernel.__name__).strip("_")


def _has_fp8(launch: Launch) -> bool:
    return any(getattr(value, "dtype", None) == torch.float8_e4m3fn for value in launch.arguments.values())


def _figure(compiled: Future[str]) -> str:
    if (error := compiled.exception()) is None:
        return compiled.result()
    traceback.print_exception(error)
    return "failed"


if __name__ == "__main__":
    main()
