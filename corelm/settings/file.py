"""Settings from a TOML file."""

import tomllib
from pathlib import Path
from typing import Any

from corelm.errors import ConfigurationError

DEFAULT_FILE = Path("corelm.toml")


def read_file(given: Path | None) -> tuple[dict[str, Any], str]:
    """The tables of the settings file and its name; nothing if none was `given` and there is no corelm.toml."""
    if given is None and not DEFAULT_FILE.is_file():
        return {}, ""
    path = given or DEFAULT_FILE
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")), str(path)
    except OSError as error:
        raise ConfigurationError(f"cannot read the settings file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the settings file {path} is not valid TOML: {error}") from error
