"""Chat's parameters under the names they have in other protocols."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from corelm.api import InvalidRequestError, SamplingParams
from corelm_openai.chat.body import ChatBody, ChatJob
from corelm_openai.service import Service

ENGINE_NAMES = (*SamplingParams.__struct_fields__, "messages")
"""What the engine may find wrong."""


class Renaming:
    """`patterns` are regular expressions for parts of chat's names, and what stands there in the other protocol."""

    def __init__(self, *patterns: tuple[str, str]) -> None:
        self._patterns = [(re.compile(pattern), name) for pattern, name in patterns]

    def __call__(self, param: str) -> str:
        """The name in the other protocol."""
        for pattern, name in self._patterns:
            param = pattern.sub(name, param)
        return param

    def job(self, chat: ChatBody, service: Service, headers: Mapping[str, str]) -> ChatJob:
        """What `chat` asks for. Errors, the later ones of the engine too, name parameters as the client knows them."""
        with self.applied():
            job = chat.job(service, headers)
        engine = dict(zip(ENGINE_NAMES, ENGINE_NAMES, strict=True))
        names = {name: self(shown) for name, shown in {**engine, **job.names}.items()}
        return msgspec.structs.replace(job, names=names)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let an `InvalidRequestError` name a parameter as the client knows it."""
        try:
            yield
        except InvalidRequestError as error:
            if error.param is None:
                raise
            name = self(error.param)
            raise InvalidRequestError(str(error).replace(error.param, name), param=name, code=error.code) from error
