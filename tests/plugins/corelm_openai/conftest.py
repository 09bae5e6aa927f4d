import asyncio

import pytest
from corelm_openai.settings import OpenAISettings
from openai_fakes import FakeEngine
from openai_http import Http, RealServer


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def settings():
    return OpenAISettings(port=0)


@pytest.fixture
async def http(engine, settings):
    async with Http(engine, settings) as client:
        yield client


@pytest.fixture
async def server(engine, settings):
    async with RealServer(engine, settings) as running:
        yield running
    assert not engine.live
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
