"""Host values that the captured body writes, which no replay does, and who reads them outside of the graph.

What is written is seen by looking before and after; at which line, and who reads, by a property that stands in for the
attribute meanwhile.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from cudagraph_doctor.graph.attributes import replaced
from cudagraph_doctor.graph.callsite import Line, callsites
from cudagraph_doctor.observation.model import HostValue
from cudagraph_doctor.walk import walk

_PART = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
Roots = Callable[[], Mapping[str, object]]


class HostValues:
    """What moves on the host while captures are open.

    Args:
        roots: where to look.
    """

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._before: dict[str, str] = {}
        self.moved: dict[str, str] = {}
        """Path -> "from to", of the last capture that moved it."""

    def opened(self) -> None:
        """A capture begins."""
        self._before = self.look()

    def closed(self) -> None:
        """It ended."""
        before, after = self._before, self.look()
        changed = [path for path, value in after.items() if before.get(path) != value]
        self.moved |= {path: f"{before.get(path, 'nothing')} -> {after[path]}" for path in changed}

    def look(self) -> dict[str, str]:
        """All host values by path, as text."""
        return {path: repr(value)[:80] for path, value in walk(self._roots()).scalars.items()}

    def read_outside(self, eager: Callable[[int], None], serve: Callable[[int], None]) -> Iterator[HostValue]:
        """Those that eager steps go on moving, and that a step by graph reads outside of the graph.

        Args:
            eager: runs a step eagerly.
            serve: runs a step by graph, with the graph left out.
        """
        if not self.moved:
            return
        with _watched(self._roots(), self.moved) as (written, read):
            eager(1)
            first = self.look()
            eager(2)
            second = self.look()
            read.clear()
            serve(3)
            for path, change in self.moved.items():
                if first.get(path) != second.get(path) and path in read:
                    place = written[path].location() if path in written else None
                    yield HostValue(path, change, place, read[path].location())


@contextmanager
def _watched(roots: Mapping[str, object], paths: Iterable[str]) -> Iterator[tuple[dict[str, Line], dict[str, Line]]]:
    """Path -> the line that wrote it last, and path -> the line that read it first, inside the block."""
    written: dict[str, Line] = {}
    read: dict[str, Line] = {}
    with ExitStack() as stack:
        for path in paths:
            owner, name = _owner(roots, path)
            ours = inspect.getattr_static(type(owner), name, None)
            if name in getattr(owner, "__dict__", {}) and not hasattr(type(ours), "__get__"):
                stack.enter_context(replaced(type(owner), {name: _Property(owner, name, path, written, read)}))
        yield written, read


class _Property:
    """Stands in for an attribute of all objects of a class, and takes notes for one of them."""

    def __init__(self, owner: object, name: str, path: str, written: dict[str, Line], read: dict[str, Line]) -> None:
        self._owner, self._name, self._path = owner, name, path
        self._default = {"value": getattr(type(owner), name)} if hasattr(type(owner), name) else {}
        self._written, self._read = written, read

    def __get__(self, thing: object | None, kind: type) -> Any:
        if thing is self._owner and (lines := callsites(1)):
            self._read.setdefault(self._path, lines[0])
        held = vars(thing) if thing is not None else {}
        if self._name not in held and not self._default:
            raise AttributeError(self._name)
        return held[self._name] if self._name in held else self._default["value"]

    def __set__(self, thing: object, value: Any) -> None:
        if thing is self._owner and (lines := callsites(1)):
            self._written[self._path] = lines[0]
        vars(thing)[self._name] = value

    def __delete__(self, thing: object) -> None:
        del vars(thing)[self._name]


def _owner(roots: Mapping[str, object], path: str) -> tuple[object, str]:
    """The object that holds the last part of a path, and that part's name; (None, "") if it cannot be found."""
    parts = [name or int(index) for name, index in _PART.findall(path)]
    node = roots.get(str(parts[0]))
    parts, node = (parts[1:], node) if node is not None else (parts, roots.get(""))
    for part in parts[:-1]:
        node = _below(node, part)
    return (node, str(parts[-1])) if node is not None and parts else (None, "")


def _below(node: Any, part: str | int) -> Any:
    if isinstance(node, Mapping):
        return node.get(part, node.get(int(part)) if str(part).isdigit() else None)
    if isinstance(part, int) or (isinstance(node, (list, tuple)) and part.isdigit()):
        return node[int(part)] if isinstance(node, (list, tuple)) and int(part) < len(node) else None
    return getattr(node, part, None)
