"""Writes down the public surface: every name a plugin can use, with signatures, fields and defaults.

``python tests/core/api_surface.py`` accepts it as it is now: it writes ``api_snapshot.txt``.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

import corelm.api
import corelm.testing
from corelm import hookspecs

SNAPSHOT = Path(__file__).with_name("api_snapshot.txt")
PUBLIC = re.compile(r"(?!_|test_)|__(init|call|aiter|anext)__$")
"""What a conformance suite checks (``test_``) may grow; how an author uses it is the surface."""


def surface() -> str:
    """The whole surface as text: a paragraph for each name."""
    names = [(module, name) for module in (corelm.api, corelm.testing) for name in sorted(module.__all__)]
    paragraphs = ["\n".join(_describe(f"{module.__name__}.{name}", getattr(module, name))) for module, name in names]
    hooks = [item for name, item in sorted(vars(hookspecs).items()) if hasattr(item, "corelm_spec")]
    paragraphs += [f"hook {hook.__name__}{_signature(hook)}{_options(hook)}" for hook in hooks]
    return "\n\n".join(paragraphs) + "\n"


def _is_public(base: type) -> bool:
    """Not one of the parts that the core builds a class from."""
    ours = base.__module__.startswith("corelm.")
    return not ours or base.__name__ in {*corelm.api.__all__, *corelm.testing.__all__}


def _options(hook: Any) -> str:
    options = {name: value for name, value in hook.corelm_spec.items() if value}
    return f" {options}" if options else ""


def _describe(title: str, item: Any) -> Iterator[str]:
    if isinstance(item, tuple):
        yield f"{title} = {item}"
        return
    if not inspect.isclass(item) or get_origin(item) is not None:
        yield f"{title}{_signature(item)}" if inspect.isfunction(item) else f"{title} = {_type(item)}"
        return
    bases = [base.__name__ for base in item.__bases__ if base is not object and _is_public(base)]
    yield f"class {title}({', '.join(bases)})"
    if issubclass(item, msgspec.Struct):
        yield from (f"    {_field(field)}" for field in msgspec.structs.fields(item))
    members: dict[str, str] = {}
    for owner in reversed(item.__mro__):
        if owner.__module__.startswith("corelm."):
            members |= dict(_members(owner))
    names = item._fields if issubclass(item, tuple) else sorted(members)
    yield from (f"    {members[name]}" for name in names)


def _members(owner: type) -> Iterator[tuple[str, str]]:
    """Own attributes and methods of a class, with how they are written down."""
    if not issubclass(owner, msgspec.Struct):
        for name, annotation in inspect.get_annotations(owner).items():
            has_default = name in (owner._field_defaults if issubclass(owner, tuple) else vars(owner))
            default = f" = {_short(repr(getattr(owner, name)))}" if has_default else ""
            if PUBLIC.match(name):
                yield name, f"{name}: {_type(annotation)}{default}"
    for name, member in vars(owner).items():
        if not PUBLIC.match(name) or getattr(member, "__module__", "") == "typing":
            continue
        if isinstance(member, property):
            yield name, f"property {name}{_signature(member.fget)}"
        elif isinstance(member, classmethod | staticmethod):
            yield name, f"{type(member).__name__} {name}{_signature(member.__func__)}"
        elif inspect.isfunction(member) and not (name == "__init__" and issubclass(owner, msgspec.Struct)):
            kind = "async def" if inspect.iscoroutinefunction(member) else "def"
            abstract = "abstract " if getattr(member, "__isabstractmethod__", False) else ""
            yield name, f"{abstract}{kind} {name}{_signature(member)}"


def _field(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        default = f" = {_short(repr(field.default))}"
    elif field.default_factory is not msgspec.NODEFAULT:
        default = f" = {_short(repr(field.default_factory()))}"
    else:
        default = ""
    return f"{field.name}: {_type(field.type)}{default}"


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    return _short(str(signature))


def _type(annotation: Any) -> str:
    if inspect.isclass(annotation) and not get_args(annotation):
        return annotation.__name__
    return _short(annotation if isinstance(annotation, str) else repr(annotation))


def _short(text: str) -> str:
    """Without the modules that names come from, and without addresses; sets in order."""
    text = re.sub(r"<class '([^']+)'>", r"\1", text)
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    text = re.sub(r"\{([^{}:]*)\}", lambda match: f"{{{', '.join(sorted(match[1].split(', ')))}}}", text)
    return re.sub(r"(?<![\w.'])(?:[a-z_]\w*\.)+(?=[A-Za-z_])", "", text).replace("~", "").replace("'", '"')


if __name__ == "__main__":
    SNAPSHOT.write_text(surface(), encoding="utf-8")
