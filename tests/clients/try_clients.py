"""Tries the clients that people use against a running server.

    corelm run --openai.port 8123
    python tests/clients/try_clients.py http://127.0.0.1:8123 [CLIENT ...]

Each trial asks for something small and checks the answer's form. What it prints is the table of
``docs/guides/clients.md``; the exit status is 1 if a trial failed. Clients that are not installed are left out.
"""

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would look for prices on the internet

QUESTION = "Name a colour."
KEY = "unused"


class Server(NamedTuple):
    """Where the server is and what it serves."""

    url: str
    model: str

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"

    @property
    def openai(self) -> dict[str, str]:
        return {"base_url": self.v1, "api_key": KEY}


Trial = Callable[[Server], None]
TRIALS: dict[str, dict[str, Trial]] = {}
"""By distribution, then by what is tried."""


def trial(client: str, what: str) -> Callable[[Trial], Trial]:
    """Makes a function a trial."""

    def add(function: Trial) -> Trial:
        TRIALS.setdefault(client, {})[what] = function
        return function

    return add


ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
ADD_TOOL = {"type": "function", "function": {"name": "add", "description": "Adds two numbers.", "parameters": ADD}}


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def colour_model() -> Any:
    """A pydantic model that an answer is to be parsed to."""
    from typing import Literal

    from pydantic import BaseModel

    class Colour(BaseModel):
        """A colour."""

        name: Literal["red", "green", "blue"]

    return Colour


def check_sum(arguments: dict[str, Any]) -> None:
    assert arguments.keys() == {"a", "b"}, arguments
    assert all(isinstance(value, int) for value in arguments.values()), arguments


def user(text: str = QUESTION) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def openai_client(server: Server) -> Any:
    from openai import OpenAI

    return OpenAI(**server.openai, max_retries=0)


@trial("openai", "chat")
def _(server: Server) -> None:
    reply = openai_client(server).chat.completions.create(model=server.model, messages=user(), max_tokens=20)
    assert reply.choices[0].message.content
    assert reply.usage.completion_tokens <= 20


@trial("openai", "stream")
def _(server: Server) -> None:
    *chunks, last = openai_client(server).chat.completions.create(
        model=server.model, messages=user(), max_tokens=20, stream=True, stream_options={"include_usage": True}
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert last.usage.total_tokens


@trial("openai", "completions with logprobs")
def _(server: Server) -> None:
    reply = openai_client(server).completions.create(
        model=server.model, prompt="The capital of France is", max_tokens=3, logprobs=2
    )
    assert len(reply.choices[0].logprobs.tokens) == reply.usage.completion_tokens


@trial("openai", "tools")
def _(server: Server) -> None:
    reply = openai_client(server).chat.completions.create(
        model=server.model, messages=user("Add 1 and 2."), tools=[ADD_TOOL], tool_choice="required", max_tokens=80
    )
    check_sum(json.loads(reply.choices[0].message.tool_calls[0].function.arguments))


@trial("openai", "tools streamed")
def _(server: Server) -> None:
    options = {"tools": [ADD_TOOL], "tool_choice": "required", "max_tokens": 80}
    client = openai_client(server)
    with client.chat.completions.stream(model=server.model, messages=user("Add 1 and 2."), **options) as stream:
        final = stream.get_final_completion()
    check_sum(json.loads(final.choices[0].message.tool_calls[0].function.arguments))


@trial("openai", "parse")
def _(server: Server) -> None:
    reply = openai_client(server).chat.completions.parse(
        model=server.model, messages=user(), response_format=colour_model(), max_tokens=40
    )
    assert reply.choices[0].message.parsed.name in ("red", "green", "blue")


@trial("openai", "responses")
def _(server: Server) -> None:
    client = openai_client(server)
    reply = client.responses.create(model=server.model, input=QUESTION, max_output_tokens=20)
    assert reply.output_text
    *_, last = client.responses.create(
        model=server.model, input="Another one.", previous_response_id=reply.id, max_output_tokens=20, stream=True
    )
    assert last.response.output_text


@trial("openai", "embeddings")
def _(server: Server) -> None:
    reply = openai_client(server).embeddings.create(model=server.model, input=["a", "b"])
    assert len(reply.data) == 2
    assert abs(sum(value * value for value in reply.data[0].embedding) - 1) < 1e-3


def anthropic_client(server: Server) -> Any:
    from anthropic import Anthropic

    return Anthropic(base_url=server.url, api_key=KEY, max_retries=0)


ANTHROPIC_ADD = {"name": "add", "description": "Adds two numbers.", "input_schema": ADD}


@trial("anthropic", "messages")
def _(server: Server) -> None:
    reply = anthropic_client(server).messages.create(model=server.model, messages=user(), max_tokens=20)
    assert reply.content[0].text


@trial("anthropic", "stream")
def _(server: Server) -> None:
    asked = {"model": server.model, "messages": user(), "max_tokens": 20}
    with anthropic_client(server).messages.stream(**asked) as stream:
        assert "".join(stream.text_stream) == stream.get_final_message().content[0].text


@trial("anthropic", "tools there and back")
def _(server: Server) -> None:
    client, turns = anthropic_client(server), user("Add 1 and 2.")
    asked = {"model": server.model, "max_tokens": 80, "tools": [ANTHROPIC_ADD]}
    reply = client.messages.create(**asked, messages=turns, tool_choice={"type": "tool", "name": "add"})
    call = next(block for block in reply.content if block.type == "tool_use")
    check_sum(call.input)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "3"}
    turns += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": [result]}]
    assert client.messages.create(**asked, messages=turns).content


@trial("anthropic", "parse")
def _(server: Server) -> None:
    reply = anthropic_client(server).messages.parse(
        model=server.model, messages=user(), max_tokens=40, output_format=colour_model()
    )
    assert reply.parsed_output.name in ("red", "green", "blue")


@trial("anthropic", "count_tokens")
def _(server: Server) -> None:
    client = anthropic_client(server)
    count = client.messages.count_tokens(model=server.model, messages=user()).input_tokens
    usage = client.messages.create(model=server.model, messages=user(), max_tokens=1).usage
    assert count == usage.input_tokens + usage.cache_read_input_tokens


def langchain_model(server: Server, **options: Any) -> Any:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=server.model, **server.openai, temperature=0, max_tokens=80, max_retries=0, **options)


@trial("langchain-openai", "invoke")
def _(server: Server) -> None:
    reply = langchain_model(server).invoke(QUESTION)
    assert reply.content
    assert reply.usage_metadata["output_tokens"]


@trial("langchain-openai", "stream")
def _(server: Server) -> None:
    assert "".join(chunk.content for chunk in langchain_model(server, stream_usage=True).stream(QUESTION))


@trial("langchain-openai", "batch")
def _(server: Server) -> None:
    assert all(reply.content for reply in langchain_model(server).batch([QUESTION] * 4))


@trial("langchain-openai", "tools")
def _(server: Server) -> None:
    reply = langchain_model(server).bind_tools([add], tool_choice="any").invoke("Add 1 and 2.")
    check_sum(reply.tool_calls[0]["args"])


@trial("langchain-openai", "structured output")
def _(server: Server) -> None:
    for method in ("json_schema", "function_calling"):
        model = langchain_model(server).with_structured_output(colour_model(), method=method)
        assert model.invoke(QUESTION).name in ("red", "green", "blue")


@trial("langchain-openai", "responses")
def _(server: Server) -> None:
    assert langchain_model(server, use_responses_api=True).invoke(QUESTION).text


@trial("langchain-openai", "completions")
def _(server: Server) -> None:
    from langchain_openai import OpenAI

    assert OpenAI(model=server.model, **server.openai, max_tokens=10).invoke("Once upon a time")


@trial("langchain-openai", "embeddings")
def _(server: Server) -> None:
    from langchain_openai import OpenAIEmbeddings

    # Its check of lengths would fetch the vocabulary of an OpenAI model.
    embeddings = OpenAIEmbeddings(model=server.model, **server.openai, check_embedding_ctx_length=False)
    assert len(embeddings.embed_documents(["a", "b"])) == 2


def llama_index_model(server: Server) -> Any:
    from llama_index.llms.openai_like import OpenAILike

    return OpenAILike(
        model=server.model,
        api_base=server.v1,
        api_key=KEY,
        is_chat_model=True,
        is_function_calling_model=True,
        max_tokens=80,
        max_retries=0,
    )


@trial("llama-index-llms-openai-like", "complete")
def _(server: Server) -> None:
    assert llama_index_model(server).complete(QUESTION).text


@trial("llama-index-llms-openai-like", "stream")
def _(server: Server) -> None:
    assert "".join(chunk.delta for chunk in llama_index_model(server).stream_complete(QUESTION))


@trial("llama-index-llms-openai-like", "tools")
def _(server: Server) -> None:
    from llama_index.core.tools import FunctionTool

    model, tool = llama_index_model(server), FunctionTool.from_defaults(add)
    reply = model.chat_with_tools([tool], user_msg="Add 1 and 2.", tool_required=True)
    check_sum(model.get_tool_calls_from_response(reply)[0].tool_kwargs)


def import_litellm() -> Any:
    import litellm

    litellm.suppress_debug_info = True
    return litellm


@trial("litellm", "chat")
def _(server: Server) -> None:
    litellm = import_litellm()
    asked = {"model": f"openai/{server.model}", "messages": user(), "max_tokens": 20, **server.openai}
    reply = litellm.completion(**asked)
    assert reply.choices[0].message.content
    chunks = list(litellm.completion(**asked, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


@trial("litellm", "tools")
def _(server: Server) -> None:
    reply = import_litellm().completion(
        model=f"openai/{server.model}",
        messages=user("Add 1 and 2."),
        tools=[ADD_TOOL],
        tool_choice="required",
        max_tokens=80,
        **server.openai,
    )
    check_sum(json.loads(reply.choices[0].message.tool_calls[0].function.arguments))


@trial("litellm", "Anthropic's protocol")
def _(server: Server) -> None:
    litellm = import_litellm()
    asked = {"messages": user(), "max_tokens": 20, "api_key": KEY, "api_base": server.url}
    assert litellm.completion(model=f"anthropic/{server.model}", **asked).choices[0].message.content
    chunks = list(litellm.completion(model=f"anthropic/{server.model}", **asked, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


@trial("litellm", "embeddings")
def _(server: Server) -> None:
    reply = import_litellm().embedding(
        model=f"openai/{server.model}", input=["a"], api_base=server.v1, api_key=KEY, encoding_format="float"
    )
    assert reply.data[0]["embedding"]


@trial("instructor", "tools and schema")
def _(server: Server) -> None:
    import instructor

    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        reply = instructor.from_openai(openai_client(server), mode=mode).create(
            model=server.model, messages=user(), response_model=colour_model(), max_tokens=80, max_retries=0
        )
        assert reply.name in ("red", "green", "blue")


@trial("instructor", "Anthropic's protocol")
def _(server: Server) -> None:
    import instructor

    reply = instructor.from_anthropic(anthropic_client(server)).create(
        model=server.model, messages=user(), response_model=colour_model(), max_tokens=80, max_retries=0
    )
    assert reply.name in ("red", "green", "blue")


def ask_llm(server: Server, *arguments: str) -> str:
    """What the ``llm`` command prints."""
    with tempfile.TemporaryDirectory() as folder:
        model = {"model_id": "corelm", "model_name": server.model, "api_base": server.v1, "supports_schema": True}
        Path(folder, "extra-openai-models.yaml").write_text(json.dumps([model]))  # JSON is YAML
        command = [str(Path(sys.executable).with_name("llm")), "-m", "corelm", *arguments]
        environment = {**os.environ, "LLM_USER_PATH": folder, "OPENAI_API_KEY": KEY}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@trial("llm", "prompt with and without streaming")
def _(server: Server) -> None:
    options = ("-o", "max_tokens", "20", "-o", "temperature", "0", QUESTION)
    assert ask_llm(server, *options) == ask_llm(server, "--no-stream", *options) != ""


@trial("llm", "schema")
def _(server: Server) -> None:
    name = {"enum": ["red", "green"]}
    schema = {"type": "object", "properties": {"name": name}, "required": ["name"], "additionalProperties": False}
    answer = ask_llm(server, "--schema", json.dumps(schema), "-o", "max_tokens", "40", QUESTION)
    assert json.loads(answer)["name"] in ("red", "green")


def attempt(function: Trial, server: Server) -> str:
    """Run a trial; returns what went wrong, or nothing."""
    try:
        function(server)
    except Exception as error:  # noqa: BLE001 (reported)
        traceback.print_exc()
        return f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return ""


def row(client: str, server: Server) -> tuple[str, bool]:
    """The row of a client, and whether all went well."""
    try:
        version = importlib.metadata.version(client)
    except importlib.metadata.PackageNotFoundError:
        return f"| {client} | not installed | | |", True
    problems = {what: attempt(function, server) for what, function in TRIALS[client].items()}
    passed = ", ".join(what for what, problem in problems.items() if not problem)
    failed = "; ".join(f"{what} ({problem})" for what, problem in problems.items() if problem)
    return f"| {client} | {version} | {passed} | {failed} |", not failed


def main(url: str, *clients: str) -> int:
    """Run the trials of all clients, or of those that are named."""
    with urlopen(f"{url}/v1/models") as reply:
        server = Server(url.rstrip("/"), json.load(reply)["data"][0]["id"])
    all_well = True
    print("| client | version | passed | failed |\n|---|---|---|---|")
    for client in clients or TRIALS:
        line, well = row(client, server)
        print(line, flush=True)
        all_well = all_well and well
    return int(not all_well)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
