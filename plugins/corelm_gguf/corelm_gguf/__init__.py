"""Strict reading of GGUF files, shared by corelm plugins."""
