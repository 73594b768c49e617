"""Targets that work as they stand: what `cudagraph-doctor init` copies. They import nothing of ours."""
