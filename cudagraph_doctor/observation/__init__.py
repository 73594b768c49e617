"""Watches a target's capturing code: which operations a capture refuses or loses, at which line, in whose module.

On the path: `observe.py` (the order of dry run and captures), `session.py` (what all hooks report to) with `windows.py`
(CUDAGraph), `operators.py` (the dispatcher), `calls.py` (other calls of torch), `ledger.py` (forks and joins) and
`values.py` (what the dry run saw, handed out again); `judging.py` makes findings of it.
"""
