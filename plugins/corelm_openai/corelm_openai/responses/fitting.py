"""Conversations that are too long for the model's context."""

from collections.abc import Mapping, Sequence

from corelm.api import EngineClient, InvalidRequestError
from corelm_openai.chat.body import ChatJob
from corelm_openai.chat.messages import Message
from corelm_openai.http.errors import renaming
from corelm_openai.responses.body import ResponseBody
from corelm_openai.responses.translate import response_job
from corelm_openai.service import Service


async def fitting_job(
    body: ResponseBody, messages: Sequence[Message], service: Service, headers: Mapping[str, str]
) -> ChatJob:
    """What the engine is asked for, without as many of the first messages as it takes to fit, if that is wanted.

    Instructions stay, and so does the last message, which is refused later if even it is too long.
    Raises `InvalidRequestError`.
    """
    job = response_job(body, messages, service, headers)
    if body.truncation != "auto" or await _fits(job, service.engine):
        return job
    starts = [index for index, message in enumerate(messages) if message.role != "tool"]
    low, high = 1, len(starts) - 1
    while low <= high:
        middle = (low + high) // 2
        shorter = response_job(body, messages[starts[middle] :], service, headers)
        if await _fits(shorter, service.engine):
            job, high = shorter, middle - 1
        else:
            low = middle + 1
    return job


async def _fits(job: ChatJob, engine: EngineClient) -> bool:
    """Whether the prompt leaves room for the output that is asked for."""
    try:
        with renaming(job.names):
            prompt = await engine.tokenize(job.prompts[0])
    except InvalidRequestError as error:
        if error.code == "context_length_exceeded":
            return False
        raise
    return len(prompt) + (job.params.max_tokens or 1) <= (engine.model.max_model_len or 0)
