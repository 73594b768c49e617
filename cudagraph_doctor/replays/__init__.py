"""What each replay read, and what it should have read: the `inputs` check below its command.

`model.py` is the data; what needs torch fills it, plain Python judges it.
"""
