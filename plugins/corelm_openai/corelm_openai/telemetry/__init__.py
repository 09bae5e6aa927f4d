"""What is told of the service: log lines, metrics, traces."""
