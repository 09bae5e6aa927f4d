"""corelm in this process, as its environment sets it up: corelm_worker.py MODEL KV_TOKENS."""

import asyncio
import sys
from typing import Any

from serving import Clock, Prompts, serve

import corelm


class Corelm:
    """The engine that the server uses, without the server."""

    def __init__(self, model: str, kv_tokens: int) -> None:
        self.version = corelm.__version__
        self._loop = asyncio.Runner()
        self._engine = corelm.create_engine(model, kv_cache_tokens=kv_tokens)
        self._loop.run(self._engine.start())
        self.details = ", ".join(f"{name} {value}" for name, value in self._engine.info.details.items())

    def generate(self, prompts: Prompts, max_tokens: int) -> dict[str, Any]:
        params = corelm.SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        return self._loop.run(self._generate(prompts, params))

    async def _generate(self, prompts: Prompts, params: corelm.SamplingParams) -> dict[str, Any]:
        clock = Clock(len(prompts))
        return clock.answer(sum(await asyncio.gather(*(self._follow(prompt, params, clock) for prompt in prompts))))

    async def _follow(self, prompt: list[int], params: corelm.SamplingParams, clock: Clock) -> int:
        tokens = 0
        async for output in await self._engine.generate(prompt, params):
            if not tokens:
                clock.first_token()
            tokens = output.completion_tokens
        return tokens

    def score(self, prompts: Prompts) -> list[list[float]]:
        return [self._loop.run(self._score(prompt)) for prompt in prompts]

    async def _score(self, prompt: list[int]) -> list[float]:
        params = corelm.SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
        outputs = [output async for output in await self._engine.generate(prompt, params)]
        return [entry.logprob for entry in outputs[0].prompt_logprobs or () if entry is not None]


if __name__ == "__main__":
    serve(lambda: Corelm(sys.argv[1], int(sys.argv[2])))
