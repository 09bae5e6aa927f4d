"""corelm: an LLM serving engine that people extend instead of fork."""

__version__ = "0.1.0"
