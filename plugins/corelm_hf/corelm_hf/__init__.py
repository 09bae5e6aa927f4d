"""Hugging Face tokenizers, chat templates and model lookup for corelm."""
