"""How JSON from a client is decoded."""

from typing import TypeVar

import msgspec

from corelm.api import InvalidRequestError

T = TypeVar("T")


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


def _invalid(text: str, where: str) -> InvalidRequestError:
    """Rewrite msgspec's "Object missing required field `role` - at `$.messages[0]`" with the path in front."""
    reason, _, path = text.partition(" - at `$")
    path = where + path.rstrip("`").lstrip(".")
    missing = reason.removeprefix("Object missing required field ")
    if missing != reason:
        path = ".".join(filter(None, (path, missing.strip("`"))))
        reason = "Is required"
    if not path:
        return InvalidRequestError(f"The body is wrong: {reason}")
    return InvalidRequestError(f"{path}: {reason[0].lower()}{reason[1:]}", param=path)
