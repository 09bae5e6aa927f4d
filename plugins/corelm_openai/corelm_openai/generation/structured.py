"""What a request says of the form of its output: OpenAI's field for it, and vLLM's."""

import json
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Raw

from corelm.api import InvalidRequestError, StructuredOutput
from corelm_openai.generation.unsupported import Unsupported, asks
from corelm_openai.http.decoding import decode, decode_field
from corelm_openai.http.errors import renaming, shortened

MAX_SCHEMA_BYTES = 2**18
"""As many as corelm takes."""
ANY_OBJECT = '{"type": "object"}'
NAME_CHARACTERS = r"^[A-Za-z0-9_.-]{1,64}$"
"""Letters, digits and a few others, as OpenAI allows in names of schemas and functions."""

Name = Annotated[str, Meta(pattern=NAME_CHARACTERS)]
FormatType = Annotated[str, Meta(extra_json_schema={"enum": ("text", "json_object", "json_schema")})]
schema_decoder = msgspec.json.Decoder(dict[str, Any] | bool | None)
_schema_or_text = msgspec.json.Decoder(dict[str, Any] | bool | str | None)


class Form(NamedTuple):
    """What the output must look like."""

    param: str
    """The field that says so."""
    output: StructuredOutput


class JsonSchema(msgspec.Struct, kw_only=True):
    """A schema with a name."""

    name: Name
    description: str | None = None
    schema: Annotated[Raw, schema_decoder] = Raw()
    strict: bool | None = None
    """Makes no difference: the schema is always kept to."""


class ResponseFormat(msgspec.Struct, kw_only=True):
    """OpenAI's way to ask for JSON."""

    type: FormatType
    json_schema: JsonSchema | None = None


class StructuredOutputs(msgspec.Struct, kw_only=True):
    """vLLM's way: one of these."""

    json: Annotated[Raw, _schema_or_text] = Raw()
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class StructuredBody(Unsupported, kw_only=True):
    """The fields."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Annotated[Raw, _schema_or_text] = Raw()
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None

    def form(self) -> Form | None:
        """What was asked for. Raises `InvalidRequestError` if it is wrong, or more than one thing."""
        forms = [*self._response_format(), *self._structured_outputs(), *self._guided()]
        if len(forms) > 1:
            first, second, *_ = forms
            raise InvalidRequestError(f"{second.param} does not go together with {first.param}", param=second.param)
        return forms[0] if forms else None

    def _response_format(self) -> Iterator[Form]:
        wanted = self.response_format
        param = "response_format"
        if wanted is None or wanted.type == "text":
            return
        if wanted.type == "json_object":
            yield _form(param, "json_schema", ANY_OBJECT)
        elif wanted.type != "json_schema":
            raise InvalidRequestError(
                f"{param}.type must be text, json_object or json_schema, not {shortened(wanted.type)}",
                param=f"{param}.type",
            )
        elif wanted.json_schema is None:
            raise InvalidRequestError(f"{param}.json_schema is required", param=f"{param}.json_schema")
        else:
            source = _schema_source(wanted.json_schema.schema, f"{param}.json_schema.schema")
            yield _form(param, "json_schema", source)

    def _structured_outputs(self) -> Iterator[Form]:
        wanted = self.structured_outputs
        name = "structured_outputs"
        if wanted is None:
            return
        forms = list(_forms(f"{name}.", wanted.json, wanted.regex, wanted.choice, wanted.grammar))
        if wanted.json_object:
            forms.append(_form(f"{name}.json_object", "json_schema", ANY_OBJECT))
        if not forms:
            raise InvalidRequestError(f"{name} must have json, regex, choice, grammar or json_object", param=name)
        yield from forms

    def _guided(self) -> Iterator[Form]:
        return _forms("guided_", self.guided_json, self.guided_regex, self.guided_choice, self.guided_grammar)


def _forms(
    prefix: str, schema: Raw, regex: str | None, choice: list[str] | None, grammar: str | None
) -> Iterator[Form]:
    if asks(schema, ()):
        yield _form(f"{prefix}json", "json_schema", _schema_source(schema, f"{prefix}json", text=True))
    if regex is not None:
        yield _form(f"{prefix}regex", "regex", regex)
    if choice is not None:
        if not choice:
            raise InvalidRequestError(f"{prefix}choice is empty", param=f"{prefix}choice")
        yield _form(f"{prefix}choice", "choice", json.dumps(choice, ensure_ascii=False))
    if grammar is not None:
        yield _form(f"{prefix}grammar", "grammar", grammar)


def _form(param: str, kind: Any, source: str) -> Form:
    with renaming({"structured_output": param}):
        return Form(param, StructuredOutput(kind=kind, source=source))


def _schema_source(raw: Raw, param: str, *, text: bool = False) -> str:
    """A schema as JSON: an object, a boolean or, if `text`, a string that has such."""
    value = decode_field(raw, _schema_or_text if text else schema_decoder, param, MAX_SCHEMA_BYTES)
    if value is None:
        raise InvalidRequestError(f"{param} is required", param=param)
    if isinstance(value, str):
        try:
            value = decode(value.encode(), schema_decoder)
        except InvalidRequestError:
            value = None
        if value is None:
            raise InvalidRequestError(f"{param} must be a schema as JSON", param=param)
        return json.dumps(value, ensure_ascii=False)
    return bytes(raw).decode()
