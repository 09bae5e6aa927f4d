"""What every command does first: settings and plugins."""

from collections.abc import Sequence

from corelm.cli.messages import set_up_logging
from corelm.plugins import PluginHost
from corelm.settings import Settings, bootstrap, compose, help_text, load_settings


def load_plugins(argv: Sequence[str]) -> PluginHost:
    """The plugins that flags, environment and settings file allow; logging is set up on the way."""
    first = bootstrap(argv)
    set_up_logging(first.log_level)
    return PluginHost.load(first.plugins, first.block_plugins, trace=first.trace_plugins)


def configure(argv: Sequence[str]) -> tuple[Settings, PluginHost]:
    """Settings and plugins, or a `StartupError`."""
    host = load_plugins(argv)
    return load_settings(host, argv), host


def wants_help(argv: Sequence[str], command: str) -> bool:
    """Print all flags if that is what was asked for."""
    if not {"-h", "--help"} & set(argv):
        return False
    print(help_text(compose(load_plugins(argv).settings_models()), f"corelm {command}"))
    return True
