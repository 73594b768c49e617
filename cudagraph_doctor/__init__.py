"""Finds out why a PyTorch decode loop misbehaves under CUDA Graphs, and proves it."""

__version__ = "0.1.0"
