"""The contracts between the core and its plugins. Plugins import them from `corelm.api`."""
