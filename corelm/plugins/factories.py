"""Calling what plugins registered, and saying whose it was when it fails."""

from collections.abc import Callable
from typing import Any, Protocol

from corelm.errors import PluginError, StartupError, describe_with_place


class Registered(Protocol):
    """Something that a plugin registered. Its text names it and the plugin."""

    @property
    def factory(self) -> Callable[[Any], Any]: ...


def create(registered: Registered, context: Any, kind: type = object) -> Any:
    """Call the factory, which has to make a `kind`.

    A `StartupError` passes; anything else becomes a `PluginError` that names the plugin.
    """
    try:
        product = registered.factory(context)
    except StartupError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"{registered} could not be created: {describe_with_place(error)}") from error
    if product is None:
        raise PluginError(f"{registered} could not be created: its factory returned None")
    if not isinstance(product, kind):
        made = type(product).__name__
        raise PluginError(f"{registered}: its factory returned a {made}, which is not a corelm.api.{kind.__name__}")
    return product
