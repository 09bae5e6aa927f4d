"""``/tokenize`` and ``/detokenize`` before a real engine on the fake executor, whose tokens are bytes."""

import pytest
from corelm_openai.settings import OpenAISettings
from helpers import start_engine
from openai_http import Http, assert_error

from corelm.testing import FakeExecutor, FakeTokenizer

BOS = 256
MESSAGES = [{"role": "user", "content": "hi"}]


class Recording(FakeTokenizer):
    """Begins every text with ``<bos>``, and keeps the chats that it rendered."""

    def __init__(self):
        self.chats = []

    def encode(self, text, *, add_special_tokens=True):
        return [BOS] * add_special_tokens + super().encode(text)

    def render_chat(self, chat):
        self.chats.append(chat)
        return super().render_chat(chat)


@pytest.fixture
def tokenizer():
    return Recording()


@pytest.fixture
async def http(tokenizer):
    engine = await start_engine(FakeExecutor(max_model_len=40), tokenizer=tokenizer)
    async with Http(engine, OpenAISettings()) as client:
        yield client
    await engine.stop()


async def tokenize(http, **body):
    return await http.post("/tokenize", json=body)


async def test_a_text(http):
    reply = (await tokenize(http, prompt="héy")).json()
    assert reply == {"count": 5, "max_model_len": 40, "tokens": [BOS, *"héy".encode()], "token_strs": None}
    plain = (await tokenize(http, model="fake", prompt="héy", add_special_tokens=False)).json()
    assert plain["tokens"] == list("héy".encode())
    assert (await tokenize(http, prompt="", add_special_tokens=False)).json()["count"] == 0


async def test_what_tokens_stand_for(http):
    reply = (await tokenize(http, prompt="hé", return_token_strs=True)).json()
    assert reply["token_strs"] == ["<bos>", "h", "bytes:\\xc3", "bytes:\\xa9"]


async def test_a_conversation(http, tokenizer):
    reply = (await tokenize(http, messages=MESSAGES)).json()
    assert bytes(reply["tokens"][1:]) == b"user: hi\nassistant: "
    closed = (await tokenize(http, messages=MESSAGES, add_generation_prompt=False, add_special_tokens=False)).json()
    assert bytes(closed["tokens"][1:]) == b"user: hi\n"
    await tokenize(http, messages=MESSAGES, chat_template_kwargs={"enable_thinking": False})
    assert tokenizer.chats[-1].template_kwargs["enable_thinking"] is False
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    await tokenize(http, messages=MESSAGES, tools=[tool])
    assert [tool["function"]["name"] for tool in tokenizer.chats[-1].tools] == ["f"]
    await tokenize(http, messages=MESSAGES, continue_final_message=True, add_generation_prompt=False)
    assert tokenizer.chats[-1].continue_final_message


async def test_as_many_tokens_as_are_used(http):
    for body, path in (({"prompt": "text"}, "completions"), ({"messages": MESSAGES}, "chat/completions")):
        count = (await tokenize(http, **body)).json()["count"]
        used = await http.post(f"/v1/{path}", json={"model": "fake", "max_tokens": 1, **body})
        assert used.json()["usage"]["prompt_tokens"] == count


async def test_there_and_back(http):
    tokens = (await tokenize(http, prompt="naïve 🙂")).json()["tokens"]
    assert (await http.post("/detokenize", json={"tokens": tokens})).json() == {"prompt": "<bos>naïve 🙂"}
    assert (await http.post("/detokenize", json={"model": "fake", "tokens": []})).json() == {"prompt": ""}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "a", "messages": MESSAGES}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": [1]}, "prompt"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "nobody", "content": "a"}]}, "messages[0].role"),
        ({"messages": MESSAGES, "add_special_tokens": True}, "add_special_tokens"),
        ({"messages": MESSAGES, "chat_template": "{{ messages }}"}, "chat_template"),
        ({"messages": MESSAGES, "chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs.chat_template"),
        ({"messages": MESSAGES, "chat_template_kwargs": [1]}, "chat_template_kwargs"),
        ({"prompt": "a" * 40}, "prompt"),
        ({"prompt": "a" * 10**6}, "prompt"),
        ({"messages": [{"role": "user", "content": "a" * 40}]}, "messages"),
        ({"prompt": "a", "return_token_strs": "yes"}, "return_token_strs"),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_what_is_wrong_is_refused_by_name(http, body, param):
    assert_error(await tokenize(http, **body), 400, param=param)


async def test_a_model_that_is_named_must_be_served(http):
    for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [97]})):
        assert_error(await http.post(path, json={"model": "other", **body}), 404, code="model_not_found")


@pytest.mark.parametrize(
    ("tokens", "param"),
    [
        ([258], "tokens"),
        ([97, -1], "tokens"),
        ([10**30], "tokens"),
        (["a"], "tokens[0]"),
        ([True], "tokens[0]"),
        ([[97]], "tokens[0]"),
        ("a", "tokens"),
        (None, "tokens"),
    ],
    ids=str,
)
async def test_tokens_must_be_some(http, tokens, param):
    assert_error(await http.post("/detokenize", json={"tokens": tokens}), 400, param=param)


async def test_they_need_a_key_if_there_are_any():
    engine = await start_engine()
    async with Http(engine, OpenAISettings(api_keys=["secret"])) as http:
        for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [97]})):
            assert (await http.post(path, json=body)).status_code == 401
            assert (await http.post(path, json=body, headers={"authorization": "Bearer secret"})).status_code == 200
    await engine.stop()
