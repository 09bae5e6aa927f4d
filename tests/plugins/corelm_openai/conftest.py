import asyncio
import sys

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
def stop():
    return asyncio.Event()


@pytest.fixture
async def http(engine, settings, stop):
    async with Http(engine, settings, stop) as client:
        yield client


@pytest.fixture
async def server(engine, settings):
    async with RealServer(engine, settings) as running:
        yield running
    assert not engine.live
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A directory on the path; what is imported from it is forgotten again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("plugin_dist_")]:
        del sys.modules[name]
