"""Who owns which environment variable: two plugins, or a plugin and the core, must never share one."""

from collections.abc import Iterable

from corelm.plugins.records import BrokenPluginError, Registration
from corelm.settings.core import Settings


class VariableOwners:
    """The names under which settings are reached, with who owns each."""

    def __init__(self) -> None:
        self._owners = dict.fromkeys(Settings.model_fields, "the core")
        self._models: dict[str, object] = {}

    def claim(self, registrations: Iterable[Registration]) -> None:
        """Take the names of a plugin's settings, or raise `BrokenPluginError` and take none."""
        owners, models = dict(self._owners), dict(self._models)
        for registration in registrations:
            if registration.settings is None or models.get(registration.name) is registration.settings:
                continue
            owner = f"{registration.kind} {registration.name!r}"
            for key in [
                registration.name,
                *(f"{registration.name}_{field}" for field in registration.settings.model_fields),
            ]:
                if key in owners:
                    raise BrokenPluginError(f"setting {key!r} of {owner} is already a setting of {owners[key]}")
                owners[key] = owner
            models[registration.name] = registration.settings
        self._owners, self._models = owners, models
