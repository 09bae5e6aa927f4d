"""``corelm plugins``: what is installed, whether it keeps its contract, and a start for a new one."""

from collections.abc import Sequence
from importlib import import_module

from corelm.errors import ConfigurationError
from corelm.settings import Bootstrap, help_text
from corelm.suggestions import did_you_mean

COMMANDS = ("list", "check", "new")
USAGE = """\
usage: corelm plugins [list] [--json] [FLAGS]
       corelm plugins check NAME [FLAGS]
       corelm plugins new NAME --kind KIND [--directory DIR]

  list   what is installed, what it provides and what failed to load
  check  run the conformance suite of its kind on an executor, scheduler, tokenizer or frontend that is installed;
         takes the flags of corelm run, such as --model; exit code 1 if a check fails
  new    write the project of a plugin that works, with tests: KIND is scheduler, executor, tokenizer or frontend
"""


def main(argv: Sequence[str]) -> int:
    """Run one of the commands; ``list`` if none is named."""
    named = bool(argv) and not argv[0].startswith("-")
    command, rest = (argv[0], argv[1:]) if named else ("list", argv)
    if command not in COMMANDS:
        raise ConfigurationError(
            f"no command 'plugins {command}'{did_you_mean(command, COMMANDS)} (see corelm plugins --help)"
        )
    if {"-h", "--help"} & set(argv) and command == "list":
        flags = help_text(Bootstrap, "corelm plugins").partition("\n\n")[2]
        print(f"{USAGE}\n{flags}")
        return 0
    code: int = import_module(f"corelm.cli.plugins_{command}").main(rest)
    return code
