"""How JSON from a client is decoded."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import Raw

from corelm.api import InvalidRequestError
from corelm_openai.http.errors import shortened

T = TypeVar("T")

_FIELD_ERRORS = {
    "Object missing required field ": "Is required",
    "Object contains unknown field ": "Is not a field that is known",
}
"""How msgspec's messages about whole fields begin, and what they mean."""


def decode(data: bytes, decoder: msgspec.json.Decoder[T], path: str = "") -> T:
    """Decode a request body, or its field at `path`.

    Raises `InvalidRequestError`, whose `param` is the path of the field that is wrong.
    """
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), path) from None
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"The body is not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidRequestError("The body is nested too deeply") from None


def decode_field(raw: Raw, decoder: msgspec.json.Decoder[T], name: str, most: int) -> T:
    """Decode a field of at most `most` bytes; one that is not there is null.

    More would take long, or much memory. Raises `InvalidRequestError`.
    """
    data = bytes(raw) or b"null"
    if len(data) > most:
        raise InvalidRequestError(f"{name} must have at most {most} bytes", param=name)
    return decode(data, decoder, name)


def decode_query(query: Mapping[str, str], kind: type[T]) -> T:
    """The parameters in a URL as a struct; others are ignored. Raises `InvalidRequestError`."""
    known = getattr(kind, "__struct_fields__", ())
    try:
        return msgspec.convert({name: query[name] for name in known if name in query}, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), "") from None


def _invalid(text: str, where: str) -> InvalidRequestError:
    """Rewrite msgspec's "Object missing required field `role` - at `$.messages[0]`" with the path in front."""
    reason, _, path = text.replace(" - at `key` in `$", " as a key - at `$").partition(" - at `$")
    reason = shortened(reason)  # it may tell a value that was sent
    path = where + path.rstrip("`").lstrip(".").removesuffix("[...]")
    for beginning, meaning in _FIELD_ERRORS.items():
        if reason.startswith(beginning):
            path = ".".join(filter(None, (path, reason.removeprefix(beginning).strip("`"))))
            reason = meaning
    if not path:
        return InvalidRequestError(f"The body is wrong: {reason}")
    return InvalidRequestError(f"{path}: {reason[0].lower()}{reason[1:]}", param=path)
