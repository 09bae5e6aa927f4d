"""Suites that check a plugin against its contract, one module for each. Plugins import them from `corelm.testing`."""
