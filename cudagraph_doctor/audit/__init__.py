"""Will these graphs carry this traffic? Keys and their costs against a workload, before deployment. No torch, no GPU.

On the path: `engines/` (a configuration -> the keys that it captures), `coverage.py` (what no key serves),
`workload.py` (the batches to serve), `costs.py` (what a replay takes), `traffic.py` (hits, padding, time), `best.py` (a
better list), `simulate.py` (does a slow fallback feed back), `gates.py`, `wording.py` (findings), `emit.py` (a list as
configuration).
"""
