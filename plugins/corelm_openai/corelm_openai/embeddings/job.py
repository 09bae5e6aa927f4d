"""The engine requests behind one HTTP request for embeddings, one per prompt."""

import asyncio
from collections.abc import Sequence
from uuid import uuid4

from corelm.api import Embedding, EngineClient, RequestOptions
from corelm_openai.http.errors import renaming


class EmbeddingJob:
    """Embeds `prompts`, all at the same time."""

    def __init__(
        self,
        engine: EngineClient,
        prompts: Sequence[str | list[int]],
        options: RequestOptions,
        truncate_prompt_tokens: int | None,
    ) -> None:
        self.id = f"embd-{uuid4().hex}"
        self.request_ids = [f"{self.id}-{index}" for index in range(len(prompts))]
        self.prompt_tokens = 0
        """Of what has been embedded."""
        self._engine = engine
        self._prompts = prompts
        self._options = options
        self._truncate_prompt_tokens = truncate_prompt_tokens

    async def run(self) -> list[Embedding]:
        """One for each prompt. If one is refused or fails, the others end too."""
        pairs = zip(self._prompts, self.request_ids, strict=True)
        tasks = [asyncio.create_task(self._embed(prompt, request_id)) for prompt, request_id in pairs]
        try:
            with renaming({"prompt": "input"}):
                return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _embed(self, prompt: str | list[int], request_id: str) -> Embedding:
        embedding = await self._engine.embed(
            prompt,
            request_id=request_id,
            options=self._options,
            truncate_prompt_tokens=self._truncate_prompt_tokens,
        )
        self.prompt_tokens += embedding.prompt_tokens
        return embedding
