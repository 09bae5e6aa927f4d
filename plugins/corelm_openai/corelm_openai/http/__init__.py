"""The transport: connections, keys, errors, bodies."""
