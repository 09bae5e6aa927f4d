"""The command ``corelm``. Each command is a module with ``main(argv) -> exit code``, imported when it is asked for."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "run": "serve a model",
    "plugins": "list what is installed, check that it keeps its contract, or begin a new plugin",
    "config": "show every setting, its value and where the value comes from",
    "doctor": "say what runs on this machine, and why something does not",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0, 1 if the engine failed, or 2 if corelm cannot start as asked."""
    words = list(sys.argv[1:] if argv is None else argv)
    command = words[0] if words else "--help"
    if command in ("-h", "--help"):
        print(_usage(), file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    if command == "--version":
        from corelm import __version__

        print(f"corelm {__version__}")
        return 0
    return _run_command(command, words[1:])


def _usage() -> str:
    commands = "\n".join(f"  {name:<9} {summary}" for name, summary in COMMANDS.items())
    return f"""usage: corelm COMMAND [FLAGS]
       corelm --version

{commands}

corelm COMMAND --help lists the flags.

exit codes: 0 ended as asked, also while loading; 1 the engine or the frontend failed; 2 corelm cannot start as asked;
130 or 143 a second SIGINT or SIGTERM ended it at once"""


def _run_command(command: str, argv: list[str]) -> int:
    from corelm.cli.messages import print_error
    from corelm.errors import ConfigurationError, StartupError
    from corelm.suggestions import did_you_mean

    try:
        if command not in COMMANDS:
            raise ConfigurationError(f"no command {command!r}{did_you_mean(command, COMMANDS)} (see corelm --help)")
        code: int = import_module(f"corelm.cli.{command}").main(argv)
    except StartupError as error:
        print_error(error)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code
