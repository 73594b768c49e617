"""Nested values (dicts, lists, tuples, dataclasses, plain objects): paths to leaves, and rebuilding.

torch's own pytree knows only registered dataclasses and gives no attribute paths; the names of leaves are what findings
are about, so this is ours.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

_OPAQUE = (
    enum.Enum,
    torch.Tensor,
    torch.nn.Module,
    torch.Generator,
    types.ModuleType,
    type,
    types.FunctionType,
    types.MethodType,
)


def children(node: Any) -> Iterator[tuple[str, Any]]:
    """The (path element, value) pairs directly below `node`; nothing for a leaf.

    Path elements are ".attr" for dataclass fields and attributes, ".key" for string keys, "[key]" for other keys and
    indices.
    """
    if isinstance(node, _OPAQUE) or node is None or isinstance(node, (bool, int, float, complex, str, bytes)):
        return
    if isinstance(node, dict):
        for key, value in node.items():
            yield (f".{key}" if isinstance(key, str) else f"[{key!r}]"), value
    elif isinstance(node, tuple) and hasattr(node, "_fields"):
        for name in node._fields:
            yield f".{name}", getattr(node, name)
    elif isinstance(node, (list, tuple)):
        for index, value in enumerate(node):
            yield f"[{index}]", value
    elif dataclasses.is_dataclass(node):
        for field in dataclasses.fields(node):
            if hasattr(node, field.name):
                yield f".{field.name}", getattr(node, field.name)
    elif type(node).__module__ not in ("builtins", "numpy", "torch", "enum") and hasattr(node, "__dict__"):
        for name, value in vars(node).items():
            yield f".{name}", value


def leaves(tree: Any) -> dict[str, Any]:
    """All leaves by path ("meta.seq_lens", "caches[0].k"); a tree that is a leaf itself has path "".

    A value met twice is listed at its first path only; cycles end there.
    """
    found: dict[str, Any] = {}
    _collect("", tree, found, set())
    return found


# Functions of their own: one that calls itself from a closure is a reference cycle, and keeps the user's tensors alive
# until the garbage collector comes by.


def _collect(path: str, node: Any, found: dict[str, Any], seen: set[int]) -> None:
    below = list(children(node))
    if not below:
        found[path.removeprefix(".")] = node
        return
    if id(node) in seen:
        return
    seen.add(id(node))
    for element, value in below:
        _collect(path + element, value, found, seen)


def tensors(tree: Any) -> dict[str, torch.Tensor]:
    """The tensor leaves by path."""
    return {path: leaf for path, leaf in leaves(tree).items() if isinstance(leaf, torch.Tensor)}


def copies(tree: Any) -> dict[str, Any]:
    """All leaves by path, as they are now: tensors and numpy arrays copied (to tensors), other leaves as they are."""

    def copied(leaf: Any) -> Any:
        if type(leaf).__module__ == "numpy" and hasattr(leaf, "dtype"):
            try:
                return torch.tensor(leaf)
            except TypeError:  # of objects
                return leaf
        return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf

    return {path: copied(leaf) for path, leaf in leaves(tree).items()}


def rebuild(tree: Any, change: Callable[[str, Any], Any]) -> Any:
    """A copy of `tree` with each leaf replaced by `change(path, leaf)`. Containers keep their types."""
    return _rebuilt("", tree, change)


def _rebuilt(path: str, node: Any, change: Callable[[str, Any], Any]) -> Any:
    below = list(children(node))
    if not below:
        return change(path.removeprefix("."), node)
    new = [_rebuilt(path + element, value, change) for element, value in below]
    if isinstance(node, dict):
        mapping = copy.copy(node)  # its type may hold more than its items
        mapping.update(zip(node, new, strict=True))
        return mapping
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return type(node)(*new)
    if isinstance(node, (list, tuple)):
        return type(node)(new)
    other = copy.copy(node)
    for (element, _), value in zip(below, new, strict=True):
        # frozen dataclasses refuse setattr; the copy is ours
        object.__setattr__(other, element[1:], value)
    return other
