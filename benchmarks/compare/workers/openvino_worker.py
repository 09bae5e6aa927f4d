"""OpenVINO GenAI in this process: openvino_worker.py MODEL KV_TOKENS PROPERTIES, the last as JSON."""

import json
import sys
from typing import Any

import numpy
import openvino
import openvino_genai
from serving import Clock, Prompts, serve

KV_BLOCK_TOKENS = 32
"""The size of its KV blocks on a CPU."""


class OpenVino:
    """Its pipeline for many sequences, which is also its fastest for one."""

    def __init__(self, model: str, kv_tokens: int, properties: dict[str, Any]) -> None:
        self.version = openvino_genai.__version__
        self.details = json.dumps(properties)
        scheduling = openvino_genai.SchedulerConfig()
        scheduling.num_kv_blocks = kv_tokens // KV_BLOCK_TOKENS
        scheduling.enable_prefix_caching = True
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(model, scheduling, "CPU", properties)
        self._requests = 0

    def generate(self, prompts: Prompts, max_tokens: int) -> dict[str, Any]:
        config = openvino_genai.GenerationConfig(max_new_tokens=max_tokens, ignore_eos=True, do_sample=False)
        clock = Clock(len(prompts))
        handles = [self._add(prompt, config) for prompt in prompts]
        counts = [0] * len(prompts)
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            for number, handle in enumerate(handles):
                if handle.can_read():
                    if not counts[number]:
                        clock.first_token()
                    counts[number] += sum(len(output.generated_ids) for output in handle.read().values())
        return clock.answer(sum(counts))

    def score(self, prompts: Prompts) -> list[list[float]]:
        return [self._score(prompt) for prompt in prompts]

    def _score(self, prompt: list[int]) -> list[float]:
        config = openvino_genai.GenerationConfig(max_new_tokens=1, do_sample=False, echo=True, logprobs=1)
        handle = self._add(prompt, config)
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
        [output] = handle.read_all()
        return list(output.generated_log_probs)[1 : len(prompt)]

    def _add(self, prompt: list[int], config: Any) -> Any:
        self._requests += 1
        return self._pipeline.add_request(self._requests, openvino.Tensor(numpy.array([prompt], numpy.int64)), config)


if __name__ == "__main__":
    serve(lambda: OpenVino(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])))
