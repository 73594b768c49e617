"""What the steps of a trace mean: verdict, bucket, and why a step was not a replay. Plain Python on records.

On the path: `verdict.py` (the rule), `sizes.py` (buckets), `reasons.py` (why not), `judged.py` (all of it for a run),
`summary.py` (numbers), `gates.py` (what was demanded), `wording.py` (findings). No reader, no SQL, no torch.
"""
