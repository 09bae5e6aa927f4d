"""OpenVINO GenAI, which reads the GGUF file: with its defaults, and with the hint that makes it decode faster.

By default it computes in bfloat16 where the processor has matrix instructions for it. Told float32, it quantises
activations to 8 bits instead.
"""

import json

from install import python_packages
from process import Command
from workload import KV_TOKENS

from engines.engine import WORKERS, Engine, Place


def engine(name: str, properties: dict[str, str]) -> Engine:
    def install(place: Place) -> None:
        python_packages(place.home / "openvino", "openvino-genai")

    def worker(place: Place) -> Command:
        script = WORKERS / "openvino_worker.py"
        python = place.home / "openvino/bin/python"
        return Command([python, script, place.model, str(KV_TOKENS), json.dumps(properties)])

    return Engine(name, install, worker, "the package brings no server")


def engines() -> list[Engine]:
    """Both variants."""
    return [engine("openvino", {}), engine("openvino-f32", {"INFERENCE_PRECISION_HINT": "f32"})]
