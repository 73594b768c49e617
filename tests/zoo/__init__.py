"""Sound targets on which the doctor has to stay silent, one a file; each says why a careless tool would cry wolf.

Every file has `target(device, seed=0)`. `paged.py`, `paged_engine.py` and `capturing.py` hold what several of them
share.
"""
