"""Embeddings of the demo model beside the hidden states of transformers, and its tokens over HTTP."""

import asyncio

import httpx
import numpy as np
import pytest
import torch
from e2e_texts import TEXT
from openai import OpenAI

import corelm

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

TEXTS = ["A cat sat on the mat.", TEXT[:300], "The kitten lay on the rug.", TEXT[:400], "x"]


@pytest.fixture(scope="session")
def expected(reference):
    """transformers' last hidden state of the last token of each text, divided by its length."""
    tokenizer, model = reference
    vectors = []
    for text in TEXTS:
        with torch.inference_mode():
            state = model.model(torch.tensor([tokenizer(text).input_ids])).last_hidden_state[0, -1].double().numpy()
        vectors.append(state / np.linalg.norm(state))
    return np.array(vectors)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "auto"])
async def test_embeddings_are_those_of_transformers(expected, dtype):
    """Together, in chunks, behind what the prefix cache has, and alone."""
    engine = corelm.create_engine(dtype=dtype, max_num_batched_tokens=48, kv_cache_tokens=2048, max_model_len=512)
    await engine.start()
    try:
        together = await asyncio.gather(*map(engine.embed, TEXTS))
        again = [await engine.embed(text) for text in TEXTS]
        alone = [await engine.embed(text, options=corelm.RequestOptions(prefix_cache=False)) for text in TEXTS]
    finally:
        await engine.stop()
    assert all(embedding.cached_tokens >= 32 for embedding in (again[1], again[3]))
    assert not any(embedding.cached_tokens for embedding in alone)
    for embeddings in (together, again, alone):
        vectors = np.array([embedding.vector for embedding in embeddings])
        if dtype == "float32":
            assert np.abs(vectors - expected).max() < 1e-4
        assert (vectors * expected).sum(axis=1).min() > 0.99


def test_over_http(serve, reference, expected):
    tokenizer, _ = reference
    server = serve(CORELM_KV_CACHE_TOKENS="2048")
    server.wait_ready()
    with OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0) as client:
        reply = client.embeddings.create(model="SmolLM2-135M-Instruct", input=TEXTS)
    assert (np.array([item.embedding for item in reply.data]) * expected).sum(axis=1).min() > 0.99
    tokens = [tokenizer(text).input_ids for text in TEXTS]
    assert reply.usage.prompt_tokens == sum(map(len, tokens))
    found = [httpx.post(f"{server.url}/tokenize", json={"prompt": text}).json() for text in TEXTS]
    assert [reply["tokens"] for reply in found] == tokens
    texts = [httpx.post(f"{server.url}/detokenize", json={"tokens": ids}).json()["prompt"] for ids in tokens]
    assert texts == TEXTS
    messages = [{"role": "user", "content": "Hi"}]
    rendered = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    reply = httpx.post(f"{server.url}/tokenize", json={"messages": messages}).json()
    assert reply["tokens"] == tokenizer(rendered, add_special_tokens=False).input_ids
