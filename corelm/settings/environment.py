"""Settings from environment variables, and what to say about variables that nothing reads."""

import logging
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from corelm.errors import ConfigurationError
from corelm.settings.core import PREFIX
from corelm.settings.fields import SettingField, takes_list
from corelm.suggestions import did_you_mean

SERVICE_NAME = re.compile(r"CORELM(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")
SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")
logger = logging.getLogger(__name__)


class Environment(EnvSettingsSource):
    """Environment variables. Lists are JSON or separated by commas."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        if takes_list(field.annotation) and not value.lstrip().startswith("["):
            return [part.strip() for part in value.split(",") if part.strip()]
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value  # validation refuses it, in words that name the variable


def check_variables(table: Iterable[SettingField], absent_plugins: Iterable[str]) -> None:
    """Refuse ``CORELM_*`` variables that nothing reads, so that a typing error never goes unnoticed.

    Variables of plugins that are installed but not loaded, and those that an orchestrator sets for a service
    called corelm, are logged instead.
    """
    known = {field.variable for field in table}
    absent = {PREFIX + name.upper() + "_": name for name in absent_plugins}
    problems = []
    for variable, value in _ours(os.environ).items():
        if variable in known:
            if variable.endswith("_PORT") and SERVICE_URL.match(value):
                problems.append(f"{variable}={value!r} {_service_advice(variable)} or set {variable} yourself")
        elif _set_by_orchestrator(variable, value):
            logger.warning("%s=%r is ignored: it %s", variable, value, _service_advice(variable))
        elif owner := next((name for prefix, name in absent.items() if variable.startswith(prefix)), None):
            logger.warning("%s is ignored: plugin %r is not loaded", variable, owner)
        else:
            problems.append(f"nothing reads the variable {variable}{did_you_mean(variable, known)}")
    if problems:
        raise ConfigurationError("\n".join(problems))


def _ours(environment: Mapping[str, str]) -> dict[str, str]:
    named = {name.upper(): value for name, value in environment.items()}
    return {name: named[name] for name in sorted(named) if name.startswith(PREFIX)}


def _set_by_orchestrator(variable: str, value: str) -> bool:
    return bool(SERVICE_NAME.fullmatch(variable) or (variable.endswith("_PORT") and SERVICE_URL.match(value)))


def _service_advice(variable: str) -> str:
    service = re.split(r"_SERVICE_(?:HOST|PORT)|_PORT(?:_|$)", variable)[0].lower().replace("_", "-")
    return (
        f"looks like what an orchestrator sets for a service named {service!r}, not like a setting; "
        "rename the service, turn such variables off (enableServiceLinks: false in Kubernetes)"
    )
