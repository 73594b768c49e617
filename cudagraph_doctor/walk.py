"""Find the tensors and host values reachable from a user's objects, and name them by attribute path.

Breadth first, so the shortest path names an object; the other paths that lead to it are kept. Nothing is called, no
property is read: only `__dict__`, slots, containers, closures and bound methods are followed.
"""

from __future__ import annotations

import enum
import functools
import types
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

MAX_OBJECTS = 200_000
"""Objects visited before the walk gives up; what was left out is said."""

Scalar = bool | int | float | complex | str | bytes | None
_SCALARS = (bool, int, float, complex, str, bytes, type(None), enum.Enum)
_PLAIN = frozenset(_SCALARS)
_SKIPPED_MODULES = (
    "torch.",
    "threading",
    "logging",
    "asyncio",
    "weakref",
    "cuda.",
    "triton.",
    "nvtx",
    "rich.",
    "cudagraph_doctor.graph",
)


@dataclass(slots=True)
class Walk:
    """What was found. Paths read like Python: "model.layers.0.attn.k_cache", "runner.graph_vars.slot_mapping"."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    """Those with memory; of wrappers (DTensor, quantised tensors) the ones inside."""
    scalars: dict[str, Any] = field(default_factory=dict)
    modules: dict[str, torch.nn.Module] = field(default_factory=dict)
    """Outermost modules only (their children have names of their own)."""
    aliases: dict[str, str] = field(default_factory=dict)
    """Further paths that lead to an object (a tensor, or what tensors hang from), with the path that names it."""
    complete: bool = True

    @property
    def paths(self) -> dict[str, torch.Tensor]:
        """Every place that holds a tensor: `tensors`, and where else their objects keep them.

        What hangs from an object that has several paths is listed below the first of them alone.
        """
        every = dict(self.tensors)
        for path, name in self.aliases.items():
            tensor = self.tensors.get(self.aliases.get(name, name))
            if tensor is not None:
                every.setdefault(path, tensor)
        return every

    def find(self, path: str) -> torch.Tensor | None:
        """The tensor that a path leads to, whichever of its paths that is; None if it leads to none."""
        for _ in range(len(path) + 1):  # each turn spends an element of the path
            if path in self.tensors:
                return self.tensors[path]
            known = next((start for start in _starts(path) if start in self.aliases), None)
            if known is None:
                return None
            path = (self.aliases[known] + path[len(known) :]).removeprefix(".")
        return None


def _starts(path: str) -> Iterator[str]:
    """The path, and what it starts with: "a.b[0]", "a.b", "a"."""
    while path:
        yield path
        path = path[: max(path.rfind("."), path.rfind("["), 0)]


def _inside(module: torch.nn.Module) -> list[tuple[str, Any]]:
    """What hangs from a module, by the rest of the path. Most objects of a model are modules: no generator for them."""
    own = module.__dict__
    tables = [own.get(table) for table in ("_parameters", "_buffers", "_modules")]
    found = [("." + name, value) for table in tables if table for name, value in table.items()]
    return found + [("." + name, value) for name, value in own.items() if name[:1] != "_"]


def below(node: Any) -> Iterator[tuple[str, Any]]:
    """What hangs from an object that is no module, by the rest of the path."""
    if isinstance(node, Mapping):
        for key, value in list(node.items()):
            yield (f".{key}" if isinstance(key, (str, int)) else f"[{key!r}]"), value
    elif isinstance(node, (list, tuple, deque, set, frozenset)):
        for index, value in enumerate(list(node)):
            yield f"[{index}]", value
    elif isinstance(node, types.MethodType):
        yield "", node.__self__
        yield "", node.__func__
    elif isinstance(node, functools.partial):
        yield ".func", node.func
        yield from ((f".args[{i}]", a) for i, a in enumerate(node.args))
        yield from ((f".{k}", v) for k, v in node.keywords.items())
    elif isinstance(node, types.FunctionType):
        for name, cell in zip(node.__code__.co_freevars, node.__closure__ or (), strict=False):
            try:
                yield f".{name}", cell.cell_contents
            except ValueError:  # a variable not yet assigned
                continue
    elif not _opaque(node):
        for name, value in list(getattr(node, "__dict__", {}).items()):
            yield f".{name}", value
        for klass in type(node).__mro__:
            slots = klass.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if not name.startswith("__") and hasattr(node, name):
                    yield f".{name}", getattr(node, name)


def is_scalar(value: object) -> bool:
    """Whether it is a host value, from which nothing hangs."""
    return isinstance(value, _SCALARS)


def _opaque(node: Any) -> bool:
    module = type(node).__module__ + "."
    torchs = module.startswith(_SKIPPED_MODULES) and not isinstance(node, torch.Tensor)
    return torchs or isinstance(node, (types.ModuleType, type, torch.Generator))


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether its elements lie somewhere: not those of sparse and "meta" tensors and of wrappers around others."""
    if tensor.layout is not torch.strided or tensor.is_meta:
        return False
    try:
        return tensor.data_ptr() != 0 or not tensor.numel()
    except RuntimeError:
        return False


def walk(roots: Mapping[str, object]) -> Walk:
    """Everything reachable from `roots`; a root's name starts the path ("" gives bare attribute paths)."""
    found = Walk()
    first: dict[int, str] = {}
    alive: list[Any] = []  # temporaries made while walking must not free their ids
    queue: deque[tuple[str, Any, bool]] = deque()

    def meet(path: str, value: Any, in_module: bool) -> None:
        if isinstance(value, _SCALARS):
            found.scalars.setdefault(path.removeprefix("."), value)
        else:
            queue.append((path, value, in_module))

    for name, value in roots.items():
        meet(name, value, False)
    while queue:
        path, node, in_module = queue.popleft()
        path = path.removeprefix(".")
        if id(node) in first:
            name = first[id(node)]
            if name != path and not _opaque(node):
                found.aliases.setdefault(path, name)
            continue
        if len(first) >= MAX_OBJECTS:
            found.complete = False
            break
        first[id(node)] = path
        alive.append(node)
        if isinstance(node, torch.Tensor) and has_memory(node):
            found.tensors.setdefault(path, node)
            continue
        is_module = isinstance(node, torch.nn.Module)
        if is_module and not in_module:
            found.modules.setdefault(path, node)
        for element, value in _inside(node) if is_module else below(node):
            if type(value) in _PLAIN:  # most of them: not worth a turn, or a call, of their own
                found.scalars.setdefault((path + element).removeprefix("."), value)
            else:
                meet(path + element, value, in_module or is_module)
    return found


def follow(roots: Mapping[str, object], path: str) -> torch.Tensor | None:
    """The tensor at a path of `walk` by now, without looking at anything else; None if it leads to none."""
    starts = ((root, path[len(root) :]) for root in roots if path.startswith(root))
    found = (_descend(roots[root], rest if rest[:1] in ".[" else "." + rest) for root, rest in starts)
    return next((tensor for tensor in found if tensor is not None), None)


def _descend(node: Any, rest: str) -> torch.Tensor | None:
    if not rest:
        return node if isinstance(node, torch.Tensor) else None
    if is_scalar(node) or (isinstance(node, torch.Tensor) and has_memory(node)):
        return None
    for element, value in _inside(node) if isinstance(node, torch.nn.Module) else below(node):
        if rest.startswith(element) and rest[len(element) :][:1] in ("", ".", "["):
            found = _descend(value, rest[len(element) :])
            if found is not None:
                return found
    return None
