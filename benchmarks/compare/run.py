"""Compares corelm with its peers on this machine, one piece of work after the other in turns.

    python benchmarks/compare/run.py [--rounds 3] [--engines corelm,openvino] [--work decode-1,http-8]
                                     [--corelm default --corelm exact:CORELM_DTYPE=float32]

README.md says what is measured and how.
"""

import argparse
import signal
import sys
from pathlib import Path

import report
from comparison import EVERYTHING, Comparison
from corelm_hf.resolve import resolve_model
from engines import corelm, llamacpp, openvino, vllm
from engines.engine import Engine, Place
from in_process import say
from install import CACHE

PEERS = {peer.name: peer for peer in [*openvino.engines(), llamacpp.engine(), vllm.engine()]}
OURS = "corelm"
MODEL = "smollm2"


def main() -> None:
    # Ends the engines too: those that are paused do not notice that this process is gone.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    options = parse()
    model = resolve_model(MODEL)
    assert model is not None
    comparison = Comparison(choose(options), Place(options.home, Path(model.path)), options)
    comparison.run()
    print(report.tables(comparison.results))
    say(f"written to {options.out}; logs of the engines are in {comparison.logs}")


def parse() -> argparse.Namespace:
    """The options; a wrong one ends the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def some_of(known: list[str], name: str, what: str) -> None:
        def names(text: str) -> list[str]:
            unknown = set(text.split(",")) - set(known)
            if unknown:
                raise argparse.ArgumentTypeError(
                    f"there is no {', '.join(sorted(unknown))}; there is {', '.join(known)}"
                )
            return text.split(",")

        parser.add_argument(name, type=names, default=known, help=f"{what}: {', '.join(known)}")

    some_of([OURS, *PEERS], "--engines", "some of the engines")
    some_of(EVERYTHING, "--work", "some of the work")
    parser.add_argument("--rounds", type=int, default=3, help="times that each piece of work is measured")
    variant = "a variant of corelm by environment; repeatable"
    parser.add_argument("--corelm", action="append", metavar="NAME[:VARIABLE=VALUE,...]", help=variant)
    parser.add_argument("--home", type=Path, default=CACHE, help="folder for what is installed")
    parser.add_argument("--out", type=Path, default=CACHE / "results.json", help="file for the results")
    return parser.parse_args()


def choose(options: argparse.Namespace) -> list[Engine]:
    """The engines that were asked for, variants of corelm first."""
    ours = [corelm.variant(spec) for spec in options.corelm or ["default"]] if OURS in options.engines else []
    return [*ours, *(peer for name, peer in PEERS.items() if name in options.engines)]


if __name__ == "__main__":
    main()
