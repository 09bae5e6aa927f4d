"""The life of a request, from prompt to the last output."""
