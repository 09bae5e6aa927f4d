"""The table of all settings: for each its key, variable, flag, type and description."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
from pydantic import BaseModel, SecretStr, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from corelm.settings.core import PREFIX, Bootstrap, Settings

COLLECTIONS = (list, tuple, set, frozenset)


class SettingField(msgspec.Struct, frozen=True, kw_only=True):
    """One setting, of the core or of a plugin."""

    group: str
    """Name of the registration that owns it; empty for the core."""
    name: str
    info: FieldInfo

    @property
    def key(self) -> str:
        """Its name in the settings file and in messages, such as ``openai.port``."""
        return f"{self.group}.{self.name}" if self.group else self.name

    @property
    def variable(self) -> str:
        return PREFIX + self.key.replace(".", "_").upper()

    @property
    def flag(self) -> str:
        return "--" + self.key.replace("_", "-")

    @property
    def secret(self) -> bool:
        return any(part is SecretStr for part in _parts(self.info.annotation))

    @property
    def default(self) -> Any:
        """The default value, plain and with secrets masked; None if there is none."""
        value = self.info.get_default(call_default_factory=True, validated_data={})
        return None if value is PydanticUndefined else plain(value)

    @property
    def type_name(self) -> str:
        return _type_name(self.info.annotation)


def plain(value: Any) -> Any:
    """A value as JSON types, with secrets masked."""
    if isinstance(value, SecretStr):
        return str(value)
    if isinstance(value, COLLECTIONS):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def takes_list(annotation: Any) -> bool:
    """Whether a value of this type is a list, and so may be written with commas."""
    return any(get_origin(part) in COLLECTIONS for part in (annotation, *get_args(annotation)))


def compose(models: Mapping[str, type[BaseModel]]) -> type[Settings]:
    """The core's settings with those of plugins added, each under the name it registered."""
    added: dict[str, Any] = {name: (model | None, None) for name, model in models.items()}
    return create_model("RunSettings", __base__=Settings, **added)


def plugin_models(settings: type[Bootstrap]) -> dict[str, type[BaseModel]]:
    """The settings models that `compose` added, by name."""
    added = (item for item in settings.model_fields.items() if item[0] not in Settings.model_fields)
    return {name: get_args(info.annotation)[0] for name, info in added}


def fields_of(settings: type[Bootstrap]) -> list[SettingField]:
    """Every setting, the core's first."""
    core = Settings.model_fields if issubclass(settings, Settings) else Bootstrap.model_fields
    table = [SettingField(group="", name=name, info=info) for name, info in core.items()]
    for group, model in plugin_models(settings).items():
        table += [SettingField(group=group, name=name, info=info) for name, info in model.model_fields.items()]
    return table


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from _parts(part)


def _type_name(annotation: Any) -> str:
    """A type in words for people: secrets and None are left out."""
    if isinstance(annotation, str):
        return annotation
    arguments = get_args(annotation)
    if not arguments:
        words: dict[Any, str] = {SecretStr: "str", Path: "path"}
        return words.get(annotation) or str(getattr(annotation, "__name__", annotation))
    named = [_type_name(part) for part in arguments if part is not type(None)]
    if get_origin(annotation) in COLLECTIONS:
        return f"list of {named[0]}"
    if get_origin(annotation) is dict:
        return f"{named[1]} by name"
    return named[0] if hasattr(annotation, "__metadata__") else " | ".join(named)
