"""Requests from a file of JSON lines; the answers go to another, in the order in which they are ready."""

import asyncio
import sys
from asyncio import FIRST_COMPLETED, Event, Semaphore
from pathlib import Path
from typing import Any, BinaryIO, TypedDict, TypeVar

import msgspec
from pydantic import BaseModel, Field

from corelm.api import (
    Chat,
    ConfigurationError,
    CorelmError,
    EngineClient,
    Frontend,
    FrontendContext,
    InvalidRequestError,
    Prompt,
    Register,
    RequestOptions,
    RequestOutput,
    SamplingParams,
    hookimpl,
)

corelm_api = ((0, 2), (1, 0))

LOADING_POLL_S = 0.05

StructT = TypeVar("StructT", bound=msgspec.Struct)
Record = dict[str, Any]


class JsonlSettings(BaseModel):
    """Settings of the JSON-lines frontend."""

    input: Path | None = Field(None, description="File to read requests from. Without it, standard input.")
    output: Path | None = Field(None, description="File to write answers to. Without it, standard output.")
    concurrency: int = Field(16, ge=1, description="Most requests that are under way at a time.")


class Message(TypedDict):
    role: str
    content: str


class Conversation(msgspec.Struct):
    """A line with messages in place of a prompt."""

    messages: list[Message]


class JsonlBatch(Frontend):
    """Serves until its input ends, or until it is told to stop: then what was read is still answered.

    Files are read and written in other threads, so that a slow disk or pipe holds up nobody else.
    """

    def __init__(self, settings: JsonlSettings) -> None:
        """Raises `ConfigurationError` if a file cannot be opened."""
        self._input: BinaryIO = _open(settings.input, "rb", sys.stdin.buffer)
        self._output: BinaryIO = _open(settings.output, "wb", sys.stdout.buffer)
        self._slots = Semaphore(settings.concurrency)
        self._writing = asyncio.Lock()

    async def serve(self, engine: EngineClient, stop: Event) -> None:
        stopping = asyncio.create_task(stop.wait())
        try:
            while engine.status == "starting" and not stop.is_set():
                await asyncio.wait([stopping], timeout=LOADING_POLL_S)
            async with asyncio.TaskGroup() as answering:
                number = 0
                while line := await self._next_line(stopping):
                    number += 1
                    if line.strip():
                        await self._slots.acquire()
                        answering.create_task(self._answer(engine, number, line))
        finally:
            stopping.cancel()

    async def _next_line(self, stopping: "asyncio.Task[Any]") -> bytes:
        """The next line of the input; empty at its end, and when stopping."""
        if stopping.done():
            return b""
        reading = asyncio.create_task(asyncio.to_thread(self._input.readline))
        await asyncio.wait([reading, stopping], return_when=FIRST_COMPLETED)
        if reading.done():
            return reading.result()
        # The thread is left waiting for its line; the command ``corelm run`` ends all the same.
        reading.cancel()
        return b""

    async def _answer(self, engine: EngineClient, number: int, line: bytes) -> None:
        record: Record = {"line": number}
        try:
            fields = _fields(line)
            record["id"] = fields.pop("id", None)
            prompt, params, options = request(fields)
            stream = await engine.generate(prompt, params, options=options)
            records = [record | answer(output) for output in await stream.results()]
        except CorelmError as error:
            records = [record | {"error": str(error)}]
        async with self._writing:
            await asyncio.to_thread(self._write, records)
        self._slots.release()

    def _write(self, records: list[Record]) -> None:
        self._output.writelines(msgspec.json.encode(record) + b"\n" for record in records)
        self._output.flush()


def request(fields: Record) -> tuple[Prompt, SamplingParams, RequestOptions]:
    """What a line asks for. Raises `InvalidRequestError`."""
    fields = dict(fields)
    prompts: list[Prompt] = [fields.pop("prompt")] if "prompt" in fields else []
    if "messages" in fields:
        prompts.append(Chat(messages=_convert(Conversation, {"messages": fields.pop("messages")}).messages))
    if len(prompts) != 1:
        raise InvalidRequestError("a line needs either a prompt or messages", param="prompt")
    options = fields.pop("options", {})
    return prompts[0], _convert(SamplingParams, fields), _convert(RequestOptions, options)


def answer(output: RequestOutput) -> Record:
    """One choice of a request."""
    usage = {name: getattr(output, name) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")}
    return {"index": output.index, "text": output.text, "finish_reason": output.finish_reason, "usage": usage}


def _fields(line: bytes) -> Record:
    try:
        fields: Record = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidRequestError(f"not a JSON object: {error}") from error
    return fields


def _convert(kind: type[StructT], fields: Any) -> StructT:
    """`fields` as a checked structure, in which nothing may be misspelt."""
    unknown = set(fields) - set(kind.__struct_fields__) if isinstance(fields, dict) else ()
    if unknown:
        raise InvalidRequestError(f"unknown field {min(unknown)!r}", param=min(unknown))
    try:
        return msgspec.convert(fields, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(str(error)) from error


def _open(path: Path | None, mode: str, standard: BinaryIO) -> Any:
    if path is None:
        return standard
    try:
        return path.open(mode)
    except OSError as error:
        raise ConfigurationError(f"jsonl: cannot open {path}: {error.strerror}") from error


@hookimpl
def corelm_register_frontends(register: Register[FrontendContext, Frontend]) -> None:
    register(
        "jsonl",
        lambda context: JsonlBatch(context.settings),
        settings=JsonlSettings,
        summary="requests from JSON lines, answers to JSON lines",
    )
