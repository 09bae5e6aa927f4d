"""OpenAI-compatible HTTP frontend of corelm."""
