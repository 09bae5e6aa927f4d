"""``corelm plugins new``: write the project of a plugin."""

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from corelm.cli.configuration import load_plugins
from corelm.cli.scaffold import SAMPLES, module_of, project
from corelm.errors import ConfigurationError
from corelm.plugins.loading import NAME
from corelm.settings import Settings

MAX_NAME_LENGTH = 40


def main(argv: Sequence[str]) -> int:
    """Write a project into a new directory, and say what to do next."""
    parser = _Parser(prog="corelm plugins new", description="Write the project of a plugin that works, with tests.")
    parser.add_argument("name", metavar="NAME", help="what users select, such as my_policy")
    parser.add_argument("--kind", required=True, choices=sorted(SAMPLES), help="what it is")
    parser.add_argument("--directory", metavar="DIR", type=Path, help="a new directory (default: corelm_NAME)")
    words = parser.parse_args(argv)
    _check_name(words.name)
    directory: Path = words.directory or Path(module_of(words.name))
    files = project(words.kind, words.name)
    _write(directory, files)
    print(f"{directory}: {', '.join(files)}")
    print(f"try it: cd {directory} && pip install -e '.[dev]' && python -m pytest && corelm plugins check {words.name}")
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigurationError(f"{message} (see {self.prog} --help)")


def _check_name(name: str) -> None:
    """Raise `ConfigurationError` if a plugin of this name could not be installed beside what is there."""
    if not NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH or name == "auto":
        raise ConfigurationError(
            f"{name!r} is no name for a plugin: it must match {NAME.pattern}, have at most {MAX_NAME_LENGTH} "
            "characters and not be 'auto'"
        )
    if name in Settings.model_fields:
        raise ConfigurationError(f"{name!r} is a setting of corelm; choose another name")
    for plugin in load_plugins([]).plugins:
        if name == plugin.name or name in (key.partition(":")[2] for key in plugin.provides):
            raise ConfigurationError(f"{name!r} is taken by {plugin}, which is installed; choose another name")
    if find_spec(module_of(name)) is not None:
        raise ConfigurationError(f"a module called {module_of(name)} is installed; choose another name than {name!r}")


def _write(directory: Path, files: dict[str, str]) -> None:
    try:
        directory.mkdir(parents=True)
        for path, text in files.items():
            (directory / path).parent.mkdir(exist_ok=True)
            (directory / path).write_text(text, encoding="utf-8")
    except FileExistsError:
        raise ConfigurationError(f"{directory} exists; name a new directory with --directory") from None
    except OSError as error:
        raise ConfigurationError(f"cannot write {directory}: {error.strerror}") from error
