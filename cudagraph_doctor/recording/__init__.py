"""`record`: runs a decode loop under a profiler and leaves a trace that `buckets` can read.

On the path: `record.py` (the parent: which profiler, which command), `play.py` (the child: the target's loop, step by
step), `ranges.py` (labels), `runner.py` (captures for a LoopTarget), `scrub.py` (a trace that may be shown to others).
"""
