"""Types as clients see them, for msgspec to describe.

They differ from those of the handlers in three ways. A field that is kept undecoded at first has the type of the
decoders that its annotation names: ``Annotated[Raw, decoder]``. One that names none, and need not be given, is known
only to be refused: it is left out. What a request's body has in common with `SamplingParams` and `RequestOptions` has
the limits that these check.
"""

import functools
import operator
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Meta, Raw

from corelm.api import RequestOptions, SamplingParams


def shown_body(cls: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """A request's body as clients see it."""
    limits = {**_hints(RequestOptions), **_hints(SamplingParams)}
    return _copy(cls, {name: _limited(hint, limits.get(name)) for name, hint in _hints(cls).items()})


@functools.cache
def shown(hint: Any) -> Any:
    """A type as clients see it. Raises `TypeError` for undecoded JSON that only a struct's field can describe."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _copy(hint, _hints(hint))
    if get_origin(hint) is Annotated:
        base, *notes = get_args(hint)
        return _decoded(notes) if base is Raw else Annotated[shown(base), *notes]
    if get_origin(hint) in (Union, types.UnionType):
        return functools.reduce(operator.or_, map(shown, get_args(hint)))
    if get_origin(hint) is Literal or not get_args(hint):
        return hint
    return get_origin(hint)[tuple(map(shown, get_args(hint)))]


def left_out(cls: type[msgspec.Struct]) -> Iterator[str]:
    """The names of the fields that clients do not see."""
    hints = _hints(cls)
    return (field.name for field in msgspec.structs.fields(cls) if hints[field.name] is Raw and not field.required)


def _copy(cls: type[msgspec.Struct], hints: Mapping[str, Any]) -> type[msgspec.Struct]:
    hidden = set(left_out(cls))
    fields = [field for field in msgspec.structs.fields(cls) if field.name not in hidden]
    config = cls.__struct_config__
    return msgspec.defstruct(
        cls.__name__,
        [(field.name, shown(hints[field.name]), _default(field)) for field in fields],
        namespace={"__doc__": cls.__doc__},
        module=cls.__module__,
        rename={field.name: field.encode_name for field in fields},
        tag=config.tag,
        tag_field=config.tag_field,
        forbid_unknown_fields=config.forbid_unknown_fields,
        kw_only=True,
    )


def _default(field: msgspec.structs.FieldInfo) -> Any:
    """As `msgspec.defstruct` takes it. What would be undecoded JSON is null."""
    if field.default_factory is not NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return None if isinstance(field.default, Raw) else field.default


def _decoded(notes: list[Any]) -> Any:
    """The type of undecoded JSON: any of those of its decoders, or what a note of msgspec says."""
    if isinstance(notes[0], Meta):
        return Annotated[Any, *notes]
    options = [decoder.type for decoder in notes]
    if len(options) == 1:
        return shown(options[0])
    return Annotated[Any, Meta(extra_json_schema={"anyOf": [msgspec.json.schema(option) for option in options]})]


def _limited(hint: Any, source: Any) -> Any:
    """`hint` with the limits of `source`, if that says more of the same number."""
    numbers = {get_args(option)[0]: option for option in _options(source) if get_origin(option) is Annotated}
    return functools.reduce(operator.or_, (numbers.get(option, option) for option in _options(hint)))


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)
