"""vLLM in this process (which starts another one for the model): vllm_worker.py MODEL."""

import sys
from typing import Any

import vllm
from serving import Clock, Prompts, serve
from vllm.sampling_params import RequestOutputKind


class Vllm:
    """Its offline engine, stepped by hand so that first tokens can be seen."""

    def __init__(self, model: str) -> None:
        self.version = vllm.__version__
        self.details = "bfloat16"
        self._llm = vllm.LLM(model, dtype="bfloat16", max_num_seqs=64)
        self._requests = 0

    def generate(self, prompts: Prompts, max_tokens: int) -> dict[str, Any]:
        params = vllm.SamplingParams(
            temperature=0.0,
            max_tokens=max_tokens,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        clock = Clock(len(prompts))
        counts: dict[str, int] = {}
        engine = self._llm.llm_engine
        for prompt in prompts:
            self._requests += 1
            engine.add_request(str(self._requests), {"prompt_token_ids": prompt}, params)
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.request_id not in counts:
                    clock.first_token()
                counts[output.request_id] = counts.get(output.request_id, 0) + len(output.outputs[0].token_ids)
        return clock.answer(sum(counts.values()))

    def score(self, prompts: Prompts) -> list[list[float]]:
        params = vllm.SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        outputs = self._llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)
        return [
            [entry[token].logprob for token, entry in zip(prompt, output.prompt_logprobs, strict=True) if entry]
            for prompt, output in zip(prompts, outputs, strict=True)
        ]


if __name__ == "__main__":
    serve(lambda: Vllm(sys.argv[1]))
