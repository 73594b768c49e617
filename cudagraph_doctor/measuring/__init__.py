"""What the keys of a target cost, measured: every key is captured, timed, compared with eager and switched to.

On the path: `visits.py` (which batches), `captures.py` (largest first on one pool, memory of each), `clock.py` (times),
`pools.py` (one pool against others), `switching.py` (keys in any order), `collect.py` (all of it, in order),
`model.py` (what came of it), `wording.py` (findings). The numbers then go through the static audit (`audit/`).
"""
