"""Calls of tools: what a request offers, and how models write them."""
