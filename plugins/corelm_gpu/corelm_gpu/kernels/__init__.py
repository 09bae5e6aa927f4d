"""The Triton kernels, one a file, each with its reference in PyTorch beside it."""
