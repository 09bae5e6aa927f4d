"""Chat completions, and what other conversation endpoints build on."""
