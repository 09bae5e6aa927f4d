"""The engines of the comparison: how each is installed and started."""
