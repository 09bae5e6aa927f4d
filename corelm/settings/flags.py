"""Settings from command-line flags."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from pydantic_settings import CliSettingsSource, SettingsError

from corelm.errors import ConfigurationError
from corelm.settings.core import Bootstrap
from corelm.settings.environment import Environment
from corelm.settings.fields import SettingField
from corelm.suggestions import did_you_mean


def read_flags(model: type[Bootstrap], argv: Sequence[str], *, ignore_unknown: bool = False) -> dict[str, Any]:
    """The values that flags give. Raises `ConfigurationError`."""
    try:
        source: CliSettingsSource[Any] = CliSettingsSource(
            model, cli_parse_args=list(argv), cli_exit_on_error=False, cli_ignore_unknown_args=ignore_unknown
        )
        return source()
    except SettingsError as error:
        raise ConfigurationError(str(error).removeprefix("error parsing CLI: ")) from error


def check_flags(table: Iterable[SettingField], argv: Sequence[str]) -> None:
    """Refuse flags that are empty, and those that do not exist, naming the nearest."""
    known = {field.flag for field in table}
    empty = [word.removesuffix("=") for word, value in pairwise([*argv, "-"]) if word.endswith("=") or value == ""]
    if empty:
        raise ConfigurationError("\n".join(f"flag {flag} needs a value" for flag in empty))
    unknown = [flag for flag in (word.split("=")[0] for word in argv if word.startswith("--")) if flag not in known]
    if unknown:
        raise ConfigurationError("\n".join(f"unknown flag {flag}{did_you_mean(flag, known)}" for flag in unknown))


def help_text(model: type[Bootstrap], program: str) -> str:
    """All flags in groups, with the variable that each can be given by."""
    source: CliSettingsSource[Any] = CliSettingsSource(
        model,
        cli_prog_name=program,
        cli_show_env_vars=True,
        cli_hide_none_type=True,
        _env_settings_source=Environment(model),
    )
    parser = source.root_parser
    parser.usage = f"{program} [FLAGS]"
    parser.description = "Flags win over variables, variables over the settings file."
    text: str = parser.format_help()
    return text.replace("  default: None (undefined)\n\n", "")
