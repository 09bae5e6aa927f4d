"""The CPU executor of corelm."""
