"""llama.cpp as node-llama-cpp brings it, prebuilt for several generations of processors."""

from install import node_packages
from process import Command

from engines.engine import WORKERS, Engine, Place


def install(place: Place) -> None:
    node_packages(place.home / "llamacpp", "node-llama-cpp")


def worker(place: Place) -> Command:
    return Command(["node", WORKERS / "llamacpp_worker.mjs", place.home / "llamacpp", place.model])


def engine() -> Engine:
    """With all cores."""
    return Engine("llamacpp", install, worker, "the npm package brings no server")
