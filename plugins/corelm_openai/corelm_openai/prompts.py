"""Prompts as completions and embeddings take them."""

import re
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Raw

from corelm.api import InvalidRequestError
from corelm_openai.http.decoding import decode

_one_prompt = msgspec.json.Decoder(str | list[int])
_texts = msgspec.json.Decoder(list[str])
_lists_of_ids = msgspec.json.Decoder(list[list[int]])

Prompts = Annotated[Raw, _one_prompt, _texts, _lists_of_ids]
"""A field for one prompt or several: a string, strings, one list of token ids, or lists of token ids."""


def read_prompts(raw: Prompts, name: str, most: int) -> Sequence[str | list[int]]:
    """The prompts, `most` at most, in the field `name`. Raises `InvalidRequestError`."""
    data = bytes(raw)
    first = re.match(rb'\[\s*(["[])', data)
    if not first:
        prompt = decode(data, _one_prompt, name)
        if prompt == []:
            raise InvalidRequestError(f"{name} is empty", param=name)
        return [prompt]
    texts = decode(data, _texts, name) if first[1] == b'"' else []
    if len(texts) > most or (not texts and data.count(b"[") > most + 1):  # millions of lists would take seconds
        raise InvalidRequestError(f"{name} must hold at most {most} prompts", param=name)
    if texts:
        return texts
    return decode(data, _lists_of_ids, name)
