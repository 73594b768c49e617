"""What the thing at a path is called, as code would write it."""

from __future__ import annotations


def own_name(path: str) -> str:
    """The last part of a path; one that is a key or an index, with what it is looked up in.

    "model.head.weight" is `weight`, "buffers.8.k.4" is `k[4]`.
    """
    *before, last = path.split(".")
    return f"{before[-1]}[{last}]" if before and last.isdecimal() else last
