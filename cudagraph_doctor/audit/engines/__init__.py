"""Configurations as people have them -> the keys that the engine captures: one module an engine; `rule.py`: defaults.

Each default rule says of which version it is and where it was read. `load.py` reads files and tells engines apart.
"""
