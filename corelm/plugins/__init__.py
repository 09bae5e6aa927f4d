"""Plugins: found by entry point, checked one by one, selected by name. Nobody else touches pluggy."""

from corelm.plugins.host import PluginHost
from corelm.plugins.records import KINDS, Kind, PluginRecord, Registration

__all__ = ["KINDS", "Kind", "PluginHost", "PluginRecord", "Registration"]
