"""Settings. Precedence: flag, then environment variable, then settings file, then default."""

from corelm.settings.core import Bootstrap, Settings
from corelm.settings.fields import SettingField, compose, fields_of
from corelm.settings.flags import check_flags, help_text
from corelm.settings.load import bootstrap, load_settings, sources

__all__ = [
    "Bootstrap",
    "SettingField",
    "Settings",
    "bootstrap",
    "check_flags",
    "compose",
    "fields_of",
    "help_text",
    "load_settings",
    "sources",
]
