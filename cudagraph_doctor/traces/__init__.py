"""Reads traces of decode loops: nsys SQLite exports and torch.profiler JSON, into one table of steps. No torch.

On the path: `sniff.py` (what is this file), `nsys.py` and `kineto.py` (into the tables of `workspace.py`), `labels.py`
and `segments.py` (where a step begins), `collect.py` (the tables, step by step, as the records of `steps.py`).
"""
