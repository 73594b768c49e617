"""May this be merged? Holds a report to what the user demands, and says in the report what came of it. No torch.

On the path: `selection.py` (which findings count), `baseline.py` (which are known), `coverage.py` (was enough looked
at), `judge.py` (all of it: a report in, the same report with its `Gate` out).
"""
