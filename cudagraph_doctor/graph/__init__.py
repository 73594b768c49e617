"""The graph model and the backends that fill it."""
