"""Other attributes for a while: on modules and classes, put back as their owner had them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_MISSING = object()


@contextmanager
def replaced(owner: Any, attributes: Mapping[str, Any]) -> Iterator[None]:
    """The attributes have these values inside the block; afterwards what the owner itself had before."""
    before = {name: vars(owner).get(name, _MISSING) for name in attributes}
    try:
        for name, value in attributes.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            if value is not _MISSING:
                setattr(owner, name, value)
            elif name in vars(owner):
                delattr(owner, name)
