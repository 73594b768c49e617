"""Findings of several checks -> root causes, each told once. Plain Python on reports, no torch.

On the path: `same.py` (are two findings one fault?), `join.py` (all findings of a report), `wording.py` (the evidence
of all checks, a line each).
"""
