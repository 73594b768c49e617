"""Walks the same objects again and again, as `walk` does, and faster for as long as they have the same shape.

The first walk lays a trail: what elements each object had and of which types, in the order in which they were met.
Later ones follow it. They read every slot anew, so whatever hangs there by then is seen; they are spared the paths.
Nothing of the user's is kept: a trail is names, types and positions. Where an object has other elements than before,
or a value of another type, or two paths lead to one object that did not (or no longer do), all is walked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import torch

from cudagraph_doctor.walk import Walk, below, has_memory, is_scalar, walk

_TRIES = 3
"""So many trails in a row that led nowhere, and no more are laid: these objects have another shape each time."""


class Rewalk:
    """Tensors, modules and paths as `walk` finds them, without the host values. For one target's roots."""

    def __init__(self) -> None:
        self._trail: _Trail | None = None
        self._tries = _TRIES

    def __call__(self, roots: Mapping[str, object]) -> Walk:
        """What is reachable from `roots` now."""
        if self._trail is not None:
            try:
                found = self._trail.follow(roots)
                self._tries = _TRIES
                return found
            except _Lost:
                self._trail = None
        found = walk(roots)
        if self._tries and found.complete:
            self._tries -= 1
            try:
                self._trail = _laid(roots, found)
            except _Lost:
                self._tries = 0
        found.scalars = {}
        return found


class _Lost(Exception):
    """The trail does not lead on."""


@dataclass(frozen=True, slots=True)
class _Holder:
    """An object with others inside, as it was."""

    elements: list[str]
    types: list[type]
    """Of the values that hang there."""
    followed: list[bool]
    """Which of these are met in turn: no host values."""
    own: list[str] | None
    """Of a module the attributes that are its author's: most of them are torch's."""

    def inside(self, node: Any) -> Iterable[Any]:
        """The objects to be met in turn. Raises _Lost if these would be others."""
        elements, values = _listed(node, self.own)
        if elements != self.elements or [*map(type, values)] != self.types:
            raise _Lost
        return compress(values, self.followed)


def _listed(node: Any, own: Sequence[str] | None) -> tuple[list[str], list[Any]]:
    """Elements, and the values that hang there. `own` as in `_Holder`. Raises _Lost."""
    if own is None:
        pairs = [*below(node)]
        return [element for element, _ in pairs], [value for _, value in pairs]
    every = node.__dict__
    a, b, c = every.get("_parameters"), every.get("_buffers"), every.get("_modules")
    if not (isinstance(a, dict) and isinstance(b, dict) and isinstance(c, dict)):
        raise _Lost  # a module that keeps them in its own way
    return [*a, *b, *c, *every], [*a.values(), *b.values(), *c.values(), *map(every.get, own)]


@dataclass(frozen=True, slots=True)
class _Trail:
    """What was met, in order."""

    roots: _Holder
    stops: list[str | int | _Holder]
    """Of a tensor its path, of an object that was met before its position."""
    new: list[bool]
    """Which of them were met for the first time."""
    aliases: dict[str, str]
    """As `Walk.aliases`."""
    modules: dict[str, int]
    """As `Walk.modules`, by position."""

    def follow(self, roots: Mapping[str, object]) -> Walk:
        """What is there now. Raises _Lost."""
        found = Walk(aliases=dict(self.aliases))
        tensors = found.tensors
        met = [*self.roots.inside(roots)]
        for node, stop in zip(met, self.stops, strict=False):  # `met` grows
            if isinstance(stop, str):
                if not has_memory(node):
                    raise _Lost
                tensors.setdefault(stop, node)
            elif isinstance(stop, _Holder):
                met += stop.inside(node)
            elif node is not met[stop]:
                raise _Lost
        if len({*map(id, compress(met, self.new))}) != sum(self.new):
            raise _Lost
        found.modules = {path: met[position] for path, position in self.modules.items()}
        return found


def _laid(roots: Mapping[str, object], found: Walk) -> _Trail:
    """The trail of a walk. Raises _Lost if something among this cannot be followed."""
    stops: list[str | int | _Holder] = []
    known: dict[int, int] = {}
    met, paths = list[Any](), list[str]()

    def hold(node: Any, path: str) -> _Holder:
        own = [name for name in node.__dict__ if name[:1] != "_"] if isinstance(node, torch.nn.Module) else None
        elements, values = _listed(node, own)
        followed = [not is_scalar(value) for value in values]
        met.extend(compress(values, followed))
        ends = elements if own is None else [f".{name}" for name in elements[: len(values) - len(own)] + own]
        paths.extend(path + end for end in compress(ends, followed))
        return _Holder(elements, [*map(type, values)], followed, own)

    start = hold(dict(roots), "")
    for position, node in enumerate(met):  # grows
        path = paths[position].removeprefix(".")
        if id(node) in known:
            stops.append(known[id(node)])
            continue
        known[id(node)] = position
        if not isinstance(node, torch.Tensor):
            stops.append(hold(node, path))
        elif has_memory(node):
            stops.append(path)
        else:
            raise _Lost
    new = [not isinstance(stop, int) for stop in stops]
    return _Trail(start, stops, new, dict(found.aliases), {path: known[id(m)] for path, m in found.modules.items()})
