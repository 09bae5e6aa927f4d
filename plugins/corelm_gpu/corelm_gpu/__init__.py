"""Executor "gpu" of corelm."""
