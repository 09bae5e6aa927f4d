"""What both generating endpoints take: the fields, how a body is decoded, and how it becomes `SamplingParams`.

Fields that are not listed here are ignored, as are those that cannot change the text (``metadata``, ``store``,
``service_tier``). ``null`` always means the default.
"""

from typing import Annotated, Any, ClassVar, TypeVar

import msgspec

from corelm.api import InvalidRequestError, SamplingParams

T = TypeVar("T")
_UINT64 = 2**64
Priority = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


class StreamOptions(msgspec.Struct, kw_only=True):
    """Options of a streamed reply."""

    include_usage: bool | None = None


class Unsupported(msgspec.Struct, kw_only=True):
    """Fields that would change the text, were they supported: refused, unless the value asks for nothing."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {
        "function_call": ("none", "auto"),
        "guided_json": (),
        "modalities": (["text"], []),
        "reasoning_effort": ("none",),
        "repetition_penalty": (1,),
        "response_format": ({"type": "text"},),
        "tool_choice": ("none", "auto"),
        "verbosity": ("medium",),
    }
    """Values that ask for nothing, besides null; where a field is not listed: false, 0, "", [] and {}."""

    audio: Any = None
    best_of: Any = None
    chat_template: Any = None
    echo: Any = None
    frequency_penalty: Any = None
    function_call: Any = None
    functions: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    logit_bias: Any = None
    logprobs: Any = None
    min_tokens: Any = None
    modalities: Any = None
    presence_penalty: Any = None
    reasoning_effort: Any = None
    repetition_penalty: Any = None
    response_format: Any = None
    structured_outputs: Any = None
    suffix: Any = None
    tool_choice: Any = None
    tools: Any = None
    top_logprobs: Any = None
    verbosity: Any = None
    web_search_options: Any = None

    def refuse_unsupported(self, n: int) -> None:
        """Raise `InvalidRequestError` for the first field that asks for something."""
        for name in Unsupported.__struct_fields__:
            value = getattr(self, name)
            asks = value not in self.neutral[name] if name in self.neutral else bool(value)
            if value is not None and asks and not (name == "best_of" and value == n):
                raise InvalidRequestError(f"{name} is not supported", param=name)


class GenerationBody(Unsupported, kw_only=True):
    """Fields of both endpoints."""

    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    priority: Priority | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def sampling(self, *, max_n: int, max_tokens: int | None) -> list[SamplingParams]:
        """The sampling parameters of each choice of a prompt, checked like everything else that both endpoints share.

        Choice i gets the seed plus i, so that choices differ and can be had again.
        """
        n = 1 if self.n is None else self.n
        if not 1 <= n <= max_n:
            raise InvalidRequestError(f"n must be between 1 and {max_n}", param="n")
        if self.stream_options is not None and not self.stream:
            raise InvalidRequestError("stream_options is only allowed when stream is true", param="stream_options")
        self.refuse_unsupported(n)
        first = SamplingParams(max_tokens=max_tokens, stop=self._stops(), **self._given())
        if self.seed is None:
            return [first] * n
        return [msgspec.structs.replace(first, seed=_wrap(self.seed + index)) for index in range(n)]

    def _stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    def _given(self) -> dict[str, Any]:
        names = ("temperature", "top_p", "top_k", "min_p", "seed", "ignore_eos")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def _wrap(seed: int) -> int:
    """Bring a seed back into the signed 64-bit range."""
    return (seed + _UINT64 // 2) % _UINT64 - _UINT64 // 2


def decode(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode a request body. Raises `InvalidRequestError`, whose `param` is the path of the field that is wrong."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"The body is not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidRequestError("The body is nested too deeply") from None


def _invalid(text: str) -> InvalidRequestError:
    """Rewrite msgspec's "Object missing required field `role` - at `$.messages[0]`" with the path in front."""
    reason, _, path = text.partition(" - at `$")
    path = path.rstrip("`").lstrip(".")
    missing = reason.removeprefix("Object missing required field ")
    if missing != reason:
        path = ".".join(filter(None, (path, missing.strip("`"))))
        reason = "Is required"
    if not path:
        return InvalidRequestError(f"The body is wrong: {reason}")
    return InvalidRequestError(f"{path}: {reason[0].lower()}{reason[1:]}", param=path)
