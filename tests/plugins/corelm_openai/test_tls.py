"""HTTPS, with certificates made for the test."""

import asyncio
import logging
import shutil
import ssl
import subprocess

import httpx
import pytest
from corelm_openai.frontend import OpenAIFrontend
from corelm_openai.http.tls import tls_context
from corelm_openai.settings import OpenAISettings
from openai_http import events_of, until

from corelm.api import ConfigurationError

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A server's certificate, one for a client, their keys, and one of the keys encrypted."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    for name, extension in (("server", "subjectAltName=IP:127.0.0.1"), ("client", "subjectAltName=DNS:client")):
        to = ["-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}", "-addext", extension]
        openssl("req", "-x509", *curve, "-nodes", "-days", "1", *to)
    openssl("ec", "-in", "server.key", "-aes128", "-passout", "pass:secret", "-out", "encrypted.key")
    (folder / "empty.pem").write_text("")
    return folder


@pytest.fixture
def settings(files):
    return OpenAISettings(port=0, tls_cert=files / "server.pem", tls_key=files / "server.key", root_path="/llm")


@pytest.fixture
async def serve(engine):
    """Starts a frontend; gives its URL."""
    stop, serving = asyncio.Event(), []

    async def start(settings):
        frontend = OpenAIFrontend(settings)
        serving.append(asyncio.create_task(frontend.serve(engine, stop)))
        await until(lambda: frontend.url or serving[0].done())
        return frontend.url

    yield start
    stop.set()
    async with asyncio.timeout(10):
        await asyncio.gather(*serving)


def trusting(files, *client):
    context = ssl.create_default_context(cafile=str(files / "server.pem"))
    if client:
        context.load_cert_chain(*(files / name for name in client))
    return context


async def test_requests_and_streams(serve, settings, files):
    url = await serve(settings)
    assert url.startswith("https://127.0.0.1:")
    assert url.endswith("/llm/v1")
    body = {"model": "fake", "prompt": "one two", "stream": True}
    async with httpx.AsyncClient(verify=trusting(files)) as client:
        whole = await client.post(f"{url}/completions", json=body | {"stream": False})
        assert whole.json()["choices"][0]["text"] == "one two " * 3
        for _ in range(3):
            *events, done = events_of((await client.post(f"{url}/completions", json=body)).text)
            assert "".join(event["choices"][0]["text"] for event in events) == "one two " * 3
            assert done == "[DONE]"


async def test_a_client_that_leaves_ends_its_request(serve, settings, files, engine):
    engine.gate, engine.gate_after = asyncio.Event(), 1
    url = httpx.URL(await serve(settings))
    reader, writer = await asyncio.open_connection(url.host, url.port, ssl=trusting(files))
    writer.write(b"POST /llm/v1/completions HTTP/1.1\r\nhost: t\r\ncontent-length: 43\r\n\r\n")
    writer.write(b'{"model":"fake","prompt":"a","stream":true}')
    await reader.readuntil(b"data:")
    writer.close()
    await until(lambda: not engine.live)
    assert engine.finished == {"abort": 1}


async def test_what_is_not_tls_harms_nobody(serve, settings, files, caplog):
    url = httpx.URL(await serve(settings))
    for sent in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05nonsense", b""):
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(sent)
        writer.write_eof()
        async with asyncio.timeout(5):
            await reader.read()
        writer.close()
    async with httpx.AsyncClient(verify=trusting(files)) as client:
        assert (await client.get(f"https://127.0.0.1:{url.port}/llm/health")).status_code == 200
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_clients_may_have_to_show_a_certificate(serve, settings, files):
    url = await serve(settings.model_copy(update={"tls_ca": files / "client.pem"}))
    async with httpx.AsyncClient(verify=trusting(files, "client.pem", "client.key")) as client:
        assert (await client.get(f"{url}/models")).status_code == 200
    for context in (trusting(files), trusting(files, "server.pem", "server.key")):
        async with httpx.AsyncClient(verify=context) as client:
            with pytest.raises(httpx.TransportError):
                await client.get(f"{url}/models")


@pytest.mark.parametrize(
    ("cert", "key", "ca", "reason"),
    [
        ("server.pem", None, None, "openai.tls_cert and openai.tls_key go together"),
        (None, "server.key", None, "openai.tls_cert and openai.tls_key go together"),
        (None, None, "client.pem", "openai.tls_ca needs both"),
        ("none.pem", "server.key", None, "openai.tls_cert: cannot read .*none.pem: No such file"),
        ("server.pem", "none.key", None, "openai.tls_key: cannot read .*none.key: No such file"),
        ("server.pem", "server.key", "none.pem", "openai.tls_ca: cannot read .*none.pem: No such file"),
        ("server.pem", "client.key", None, "are not a certificate and its key"),
        ("server.pem", "encrypted.key", None, "or the key is encrypted"),
        ("empty.pem", "server.key", None, "are not a certificate and its key"),
        ("server.pem", "server.key", "empty.pem", "openai.tls_ca: .*empty.pem has no certificates"),
    ],
)
def test_what_is_wrong_is_said(files, cert, key, ca, reason):
    named = {"tls_cert": cert, "tls_key": key, "tls_ca": ca}
    settings = OpenAISettings(**{name: value and files / value for name, value in named.items()})
    with pytest.raises(ConfigurationError, match=reason) as caught:
        tls_context(settings)
    assert "\n" not in str(caught.value)
