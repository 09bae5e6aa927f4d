"""Runs the parts of benchmarks/gpu_check.sh one by one, each in a process of its own, with a time limit of its own.

    python benchmarks/gpu_check.py --out DIR [--dry-run] [--only PART,...]

What a part finds is in DIR/results.jsonl as soon as it is known, what it prints in DIR/log.txt. Prints a table at the
end. Fails if a part did; a share below its target, marked (!), is no failure.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent / "gpu"
sys.path.insert(0, str(HERE))

from parts import PARTS  # noqa: E402
from record import Record, read, table  # noqa: E402

MOST_SECONDS = 460
LOG_LINES = 15
TRITON_INTERPRET = {True: "1", False: "0"}


def main():
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for results")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes in Triton's interpreter, without a device")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(PARTS), help=", ".join(PARTS))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results = options.out / "results.jsonl"
    results.unlink(missing_ok=True)
    os.environ["TRITON_INTERPRET"] = TRITON_INTERPRET[options.dry_run]
    if options.dry_run:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    end = time.monotonic() + MOST_SECONDS
    with (options.out / "log.txt").open("w+") as log:
        outcomes = [run(name, results, log, end, options.dry_run) for name in options.only]
    print(table(read(results)))
    if options.dry_run:
        print("Dry run: the times and shares mean nothing.")
    sys.exit(outcomes.count("done") < len(outcomes))


def run(name, results, log, end, tiny):
    """Run a part; how it ended."""
    limit = min(PARTS[name].limit_s, end - time.monotonic())
    print(f"{name}: at most {max(limit, 0):.0f} s", flush=True)
    before, place = time.monotonic(), log.seek(0, os.SEEK_END)
    outcome = "no time was left" if limit <= 0 else watched(name, results, log, limit, ["--tiny"] if tiny else [])
    Record(results, name).end(outcome, time.monotonic() - before)
    if outcome != "done":
        log.seek(place)
        print(f"{name} {outcome}; the end of its log:", *log.read().splitlines()[-LOG_LINES:], sep="\n  ", flush=True)
    return outcome


def watched(name, results, log, limit, flags):
    """Run a part until it ends or its time is up; how it ended."""
    command = [sys.executable, HERE / "part.py", name, results, *flags]
    # With its own session, so that processes that it began end with it.
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"stopped after {limit:.0f} s"
    return "done" if code == 0 else f"failed ({code})"


if __name__ == "__main__":
    main()
