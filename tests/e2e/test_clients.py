"""Many clients of the real server on the demo model."""

import asyncio
import random

import pytest
from e2e_texts import TEXT
from openai import AsyncOpenAI

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

PROMPTS = [TEXT[40 * i : 40 * i + 30 + 25 * i] for i in range(12)]
MODEL = "SmolLM2-135M-Instruct"


async def answer(client, prompt, stream):
    options = {"model": MODEL, "prompt": prompt, "max_tokens": 16, "temperature": 0}
    if not stream:
        return (await client.completions.create(**options)).choices[0].text
    chunks = await client.completions.create(stream=True, **options)
    return "".join([chunk.choices[0].text async for chunk in chunks])


async def leave(client, prompt, stream, after):
    """Disconnect at a random point."""
    if not stream:
        task = asyncio.create_task(answer(client, prompt, False))
        await asyncio.sleep(after / 10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return
    async with await client.completions.create(model=MODEL, prompt=prompt, max_tokens=64, stream=True) as chunks:
        async for _ in chunks:
            after -= 1
            if after < 0:
                return


async def test_sixty_four_clients_a_third_leaves_the_rest_get_their_solo_answers(serve):
    server = serve(CORELM_DTYPE="float32", CORELM_KV_CACHE_TOKENS="4096", CORELM_MAX_NUM_BATCHED_TOKENS="256")
    server.wait_ready()
    chance = random.Random(7)
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0, timeout=300) as client:
        solo = [await answer(client, prompt, False) for prompt in PROMPTS]
        jobs, expected = [], []
        for i in range(64):
            prompt, stream = chance.randrange(len(PROMPTS)), bool(i % 2)
            if i % 3 == 2:
                jobs.append(leave(client, PROMPTS[prompt], stream, chance.randrange(8)))
                expected.append(None)
            else:
                jobs.append(answer(client, PROMPTS[prompt], stream))
                expected.append(solo[prompt])
        assert await asyncio.gather(*jobs) == expected
        assert await answer(client, PROMPTS[0], False) == solo[0]
    code, output = server.stop()
    assert code == 0, output
    assert "Traceback" not in output
