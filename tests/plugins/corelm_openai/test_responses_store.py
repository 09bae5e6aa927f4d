"""Responses that are stored, and conversations that go on from them."""

import pytest
from corelm_openai.responses.items import Message, OutputText
from corelm_openai.responses.shape import ResponseObject
from corelm_openai.responses.store import ResponseStore, Stored
from corelm_openai.settings import OpenAISettings
from openai_http import Http, assert_error
from responses_kit import respond, responded, text_of, tool

from corelm.api import InvalidRequestError

CALL = '<tool_call>\n{"name": "look_up", "arguments": {"word": "sky"}}\n</tool_call>'


@pytest.fixture
def settings():
    return OpenAISettings(tool_format="hermes", api_keys=["one", "two"])


@pytest.fixture
async def http(engine, settings):
    async with Http(engine, settings) as client:
        client.headers["authorization"] = "Bearer one"
        yield client


def conversation(engine):
    return [(message["role"], message["content"]) for message in engine.calls[-1]["prompt"].messages]


async def test_a_stored_response_is_the_same_later(http):
    response = await responded(http, metadata={"a": "b"})
    again = await http.get(f"/v1/responses/{response['id']}")
    assert again.json() == response
    forgotten = await http.delete(f"/v1/responses/{response['id']}")
    assert forgotten.json() == {"id": response["id"], "object": "response", "deleted": True}
    for call in (http.get, http.delete):
        assert_error(await call(f"/v1/responses/{response['id']}"), 404, code="response_not_found")
    response = await responded(http, store=False)
    assert_error(await http.get(f"/v1/responses/{response['id']}"), 404)


async def test_a_conversation_goes_on_without_its_instructions(http, engine):
    engine.say = lambda prompt, seed: ["yes"]
    first = await responded(http, input="hi", instructions="be brief")
    second = await responded(http, input="really?", previous_response_id=first["id"], instructions="be kind")
    assert conversation(engine) == [("system", "be kind"), ("user", "hi"), ("assistant", "yes"), ("user", "really?")]
    assert second["previous_response_id"] == first["id"]
    await http.delete(f"/v1/responses/{first['id']}")
    await responded(http, input="so?", previous_response_id=second["id"])
    assert [text for _, text in conversation(engine)] == ["hi", "yes", "really?", "yes", "so?"]


async def test_an_output_of_a_tool_follows_its_call(http, engine):
    engine.say = lambda prompt, seed: [CALL]
    first = await responded(http, input="what colour?", tools=[tool()])
    call = first["output"][0]
    engine.say = lambda prompt, seed: ["blue"]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "#00f"}
    second = await responded(http, input=[output], previous_response_id=first["id"], tools=[tool()])
    assert text_of(second) == "blue"
    *_, assistant, result = engine.calls[-1]["prompt"].messages
    assert assistant["tool_calls"][0]["id"] == result["tool_call_id"] == call["call_id"]
    sent = [{"role": "user", "content": "what colour?"}, call, output]
    third = await responded(http, input=sent, tools=[tool()])
    assert engine.calls[-1]["prompt"].messages == engine.calls[-2]["prompt"].messages
    assert text_of(third) == "blue"


async def test_a_call_that_was_cut_off_is_not_gone_on_from(http, engine):
    engine.say = lambda prompt, seed: list(CALL)
    first = await responded(http, input="hi", tools=[tool()], max_output_tokens=len(CALL) - 20)
    assert first["status"] == "incomplete"
    engine.say = lambda prompt, seed: ["yes"]
    await responded(http, input="go on", previous_response_id=first["id"])
    assert [text for _, text in conversation(engine)] == ["hi", "go on"]


async def test_a_reference_stands_for_its_item(http, engine):
    engine.say = lambda prompt, seed: ["yes"]
    first = await responded(http, input="hi", top_logprobs=2)
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    await responded(http, input=[{"role": "user", "content": "so?"}, reference, {"role": "user", "content": "and?"}])
    assert conversation(engine) == [("user", "so?"), ("assistant", "yes"), ("user", "and?")]
    again = await respond(http, input=[reference], previous_response_id=first["id"])
    assert_error(again, 400, param="input")


async def test_other_keys_see_nothing(http, engine):
    first = await responded(http)
    http.headers["authorization"] = "Bearer two"
    url = f"/v1/responses/{first['id']}"
    for asked in (http.get(url), http.delete(url), http.post(f"{url}/cancel"), http.get(f"{url}/input_items")):
        assert_error(await asked, 404, code="response_not_found")
    answer = await respond(http, previous_response_id=first["id"])
    assert_error(answer, 400, param="previous_response_id", code="previous_response_not_found")
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    assert_error(await respond(http, input=[reference]), 400, param="input[0].id")
    http.headers["authorization"] = "Bearer one"
    assert (await http.get(url)).json() == first


async def test_input_items_page_by_page(http, engine):
    engine.say = lambda prompt, seed: ["yes"]
    first = await responded(http, input="one")
    second = await responded(
        http, input=[{"role": "user", "content": t} for t in "23"], previous_response_id=first["id"]
    )
    url = f"/v1/responses/{second['id']}/input_items"
    page = (await http.get(url)).json()
    texts = [item["content"][0]["text"] for item in page["data"]]
    assert texts == ["3", "2", "yes", "one"]
    assert (page["object"], page["has_more"]) == ("list", False)
    assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
    front = (await http.get(url, params={"order": "asc", "limit": 3})).json()
    assert front["data"] == page["data"][:0:-1]
    assert front["has_more"]
    rest = (await http.get(url, params={"order": "asc", "limit": 3, "after": front["last_id"]})).json()
    assert [item["content"][0]["text"] for item in rest["data"]] == ["3"]
    assert not rest["has_more"]
    for param, value in (("limit", 0), ("limit", 101), ("limit", "x"), ("order", "up"), ("after", "msg_none")):
        assert_error(await http.get(url, params={param: value}), 400, param=param)


async def test_only_what_runs_in_the_background_can_be_cancelled_or_streamed_later(http):
    response = await responded(http)
    url = f"/v1/responses/{response['id']}"
    assert_error(await http.post(f"{url}/cancel"), 400)
    assert_error(await http.get(url, params={"stream": "true"}), 400, param="stream")
    assert_error(await http.get(url, params={"stream": "perhaps"}), 400, param="stream")
    for after in ("x", "", "-", "1.5", "\u0663", "1" * 5000):
        assert_error(await http.get(url, params={"starting_after": after}), 400, param="starting_after")
    assert (await http.get(url, params={"stream": "false"})).json() == response


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def store_of(clock, **settings):
    return ResponseStore(OpenAISettings(**settings), clock)


def response_object(name, text="x"):
    fields = dict.fromkeys(("instructions", "max_output_tokens", "max_tool_calls", "previous_response_id"))
    fields |= dict.fromkeys(("prompt_cache_key", "reasoning", "safety_identifier", "text", "user"))
    message = Message(id=f"msg_{name}", role="assistant", content=[OutputText(text=text)])
    return ResponseObject(
        id=name,
        created_at=0,
        status="completed",
        background=False,
        metadata={},
        model="fake",
        output=[message],
        parallel_tool_calls=True,
        store=True,
        temperature=1,
        tool_choice="auto",
        tools=[],
        top_logprobs=0,
        top_p=1,
        truncation="disabled",
        **fields,
    )


def keep(store, name, *, owner=None, body=b"{}", text="x"):
    stored = Stored(owner, [])
    store.put(stored, response_object(name, text), body)
    return stored


def kept(store, *asked):
    """Which of the responses are there. Asking is no use of them, as far as this test goes."""
    return [name for name in asked if name in store._stored]


def test_the_least_recently_used_goes_first(clock):
    store = store_of(clock, responses_max=2)
    keep(store, "a")
    keep(store, "b")
    store.find("a", None)
    keep(store, "c")
    assert kept(store, "a", "b", "c") == ["a", "c"]


def test_all_together_have_a_limit_in_bytes(clock):
    store = store_of(clock, responses_max_mb=1)
    half = b" " * 2**19
    keep(store, "a", body=half)
    keep(store, "b", body=half)
    assert kept(store, "a", "b") == ["b"]
    keep(store, "c")
    assert kept(store, "b", "c") == ["b", "c"]
    keep(store, "huge", body=half * 2)
    assert kept(store, "b", "c", "huge") == ["b", "c"]
    keep(store, "d", text="y" * 2**19)
    assert kept(store, "b", "c", "d") == ["c", "d"]


def test_size_is_counted_exactly(clock):
    store = store_of(clock)
    stored = keep(store, "a")
    store.put(stored, response_object("a", "longer"), b"{} ")
    keep(store, "b")
    assert store._size == sum(stored.size for stored in store._stored.values()) > 0
    for name in "ab":
        store.remove(store.find(name, None))
    assert store._size == 0


def test_what_nobody_used_for_long_is_gone(clock):
    store = store_of(clock, responses_ttl_s=60)
    keep(store, "a")
    keep(store, "b")
    clock.now = 59
    store.find("a", None)
    clock.now = 61
    with pytest.raises(InvalidRequestError, match="no response b"):
        store.find("b", None)
    assert store.item("msg_b", None) is None
    assert store.item("msg_a", None).id == "msg_a"
    assert kept(store, "a", "b") == ["a"]
