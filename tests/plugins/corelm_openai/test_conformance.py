"""The OpenAI frontend keeps the frontend contract, on uvicorn and a port of its own."""

from contextlib import asynccontextmanager

import httpx
import pytest
from corelm_openai.frontend import OpenAIFrontend
from corelm_openai.settings import OpenAISettings
from openai_http import events_of

from corelm.testing import FrontendConformance


class OpenAI(FrontendConformance):
    def make_frontend(self):
        return OpenAIFrontend(OpenAISettings(port=0))

    async def ask_and_leave(self, frontend, prompt):
        async with asking(frontend, prompt, stream=True) as response:
            await anext(response.aiter_bytes())


class TestStreams(OpenAI):
    async def ask(self, frontend, prompt):
        async with asking(frontend, prompt, stream=True) as response:
            text = (await response.aread()).decode()
        assert response.status_code == 200, text
        *events, done = events_of(text)
        assert done == "[DONE]"
        return "".join(event["choices"][0]["text"] for event in events)


class TestWholeReplies(OpenAI):
    async def ask(self, frontend, prompt):
        async with asking(frontend, prompt) as response:
            await response.aread()
        return response.raise_for_status().json()["choices"][0]["text"]

    async def ask_and_leave(self, frontend, prompt):
        with pytest.raises(httpx.ReadTimeout):
            async with asking(frontend, prompt, patience_s=0.5):
                pass


class TestChats(OpenAI):
    async def ask(self, frontend, prompt):
        messages = [{"role": "user", "content": prompt}]
        async with httpx.AsyncClient(timeout=10) as client:
            body = {"model": "fake", "messages": messages, "max_tokens": 40}
            response = await client.post(f"{frontend.url}/chat/completions", json=body)
        return response.raise_for_status().json()["choices"][0]["message"]["content"]


@asynccontextmanager
async def asking(frontend, prompt, *, patience_s=10, **values):
    body = {"model": "fake", "prompt": prompt, "max_tokens": 40, **values}
    async with (
        httpx.AsyncClient(timeout=patience_s) as client,
        client.stream("POST", f"{frontend.url}/completions", json=body) as response,
    ):
        yield response
