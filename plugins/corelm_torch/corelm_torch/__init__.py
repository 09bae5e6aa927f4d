"""Models, weights and sampling in PyTorch, shared by corelm executors."""
