"""Who launched each node: user line, module path and operator, from a separate capture that is watched.

A dispatch mode tells the operators and what they launch. Who launches without torch's dispatcher (Triton, CUDA C++) is
told by CUPTI, where it can be had; such launches after the last operator of a capture get no line.

Watching can change what runs (a compiled module captures other kernels under a dispatch mode). So the capture that is
judged is not this one, and an origin is only believed for nodes that both captures have: see `attach`.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.backend import GraphLog, LiveGraph
from cudagraph_doctor.graph.callsite import callsite
from cudagraph_doctor.graph.cupti import Unavailable, node_creations
from cudagraph_doctor.graph.model import CapturedGraph, Origin


@dataclass(frozen=True, slots=True)
class Span:
    """Nodes that one operator launched, or that were launched between two operators (its `operator` is "")."""

    first: int
    """Position among the top-level nodes."""
    stop: int
    """One past the last."""
    origin: Origin


@dataclass(frozen=True, slots=True)
class Trace:
    """What a watched capture showed."""

    names: tuple[str, ...]
    """What each top-level node is: kernel name, otherwise its kind."""
    spans: tuple[Span, ...]
    """By first node; no node is in two."""
    no_lines: str = ""
    """Why nodes launched without torch's dispatcher have no line, a clause; "" if they have one."""


class ModulePath:
    """Which nn.Module is running, by its path from the roots.

    Where no root leads to it, it has its path from the outermost running module, or its class name if that is itself.
    """

    def __init__(self, roots: Mapping[str, torch.nn.Module]) -> None:
        self._paths: dict[int, str] = {}
        self._known: list[torch.nn.Module] = []  # kept alive, so that no other module gets one of their ids
        for root, module in roots.items():
            self._learn(root, module)
        self._running: list[str] = []

    @property
    def current(self) -> str:
        """The innermost running module's path, "" outside all modules."""
        return self._running[-1] if self._running else ""

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Follow the modules inside the block."""
        entering = register_module_forward_pre_hook(self._enter)
        leaving = register_module_forward_hook(self._leave, always_call=True)
        try:
            yield
        finally:
            entering.remove()
            leaving.remove()

    def path_of(self, module: torch.nn.Module) -> str:
        """The path of a module, running or not; its class name if no root leads to it."""
        return self._paths.get(id(module)) or type(module).__name__

    def _learn(self, root: str, module: torch.nn.Module) -> None:
        self._known.append(module)
        for path, inner in module.named_modules():
            self._paths.setdefault(id(inner), ".".join(part for part in (root, path) if part))

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        if not self._running and id(module) not in self._paths:
            self._learn("", module)
        self._running.append(self.path_of(module))

    def _leave(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if self._running:
            self._running.pop()


class SpanRecorder(TorchDispatchMode):
    """Notes after each operator how many nodes the capture has by then.

    Args:
        modules: who tells the module path.
        progress: (capture id, number of nodes so far) of the current stream, None if it does not capture.
    """

    def __init__(self, modules: ModulePath, progress: Callable[[], tuple[int, int] | None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self._modules = modules
        self._progress = progress
        self._capture: int | None = None
        self._spans: list[Span] = []
        self._seen = 0
        self._created: list[Location | None] = []

    def created(self) -> None:
        """To be called, where that is possible, from where a node is created."""
        self._created.append(callsite())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator and note the nodes that came before it and with it."""
        self._note(Origin(module=self._modules.current))
        result = func(*args, **(kwargs or {}))
        self._note(Origin(callsite(), self._modules.current, str(func)))
        return result

    def take(self, total: int) -> tuple[Span, ...]:
        """The spans of the capture that has just ended with `total` nodes."""
        self._add(total, Origin(module=self._modules.current))
        spans, self._spans, self._seen, self._capture = tuple(self._spans), [], 0, None
        return spans

    def _note(self, origin: Origin) -> None:
        now = self._progress()
        if now is None:
            self._created.clear()
            return
        capture, nodes = now
        if capture != self._capture:  # a new one, or a failed one went before
            self._capture, self._spans, self._seen = capture, [], 0
        self._add(nodes, origin)

    def _add(self, nodes: int, origin: Origin) -> None:
        """The nodes from the last one seen up to `nodes` have this origin."""
        lines, self._created = self._created, []
        new = range(self._seen, nodes)
        if not origin.operator and len(lines) == len(new):
            self._spans += [
                Span(at, at + 1, dataclasses.replace(origin, location=line))
                for at, line in zip(new, lines, strict=True)
            ]
        elif new:
            self._spans.append(Span(self._seen, nodes, origin))
        self._seen = max(self._seen, nodes)


def trace(
    log: GraphLog,
    capture: Callable[[], object],
    modules: Mapping[str, torch.nn.Module],
    progress: Callable[[], tuple[int, int] | None],
    names: Callable[[LiveGraph], tuple[str, ...]],
    creations: Callable[[Callable[[], None]], AbstractContextManager[None]] = node_creations,
) -> list[Trace]:
    """Run `capture`, which captures graphs while the hooks are in, and tell for each graph who launched its nodes.

    Args:
        log: the log of the backend whose hooks are in.
        capture: does the capturing, on this thread.
        modules: roots of the modules by name ("" for one without a name of its own).
        progress: see `SpanRecorder`.
        names: what each top-level node of a captured graph is.
        creations: see `cupti.node_creations`.
    """
    paths = ModulePath(modules)
    recorder = SpanRecorder(paths, progress)
    traces: list[Trace] = []
    no_lines = ""

    def captured(live: LiveGraph) -> None:
        found = names(live)
        traces.append(Trace(found, recorder.take(len(found)), no_lines))

    with ExitStack() as watching:
        try:
            watching.enter_context(creations(recorder.created))
        except Unavailable as reason:
            no_lines = str(reason)
        with log.listening(captured=captured), paths.followed(), recorder:
            capture()
    return traces


def attach(graph: CapturedGraph, trace: Trace) -> CapturedGraph:
    """The graph with the origins of `trace` at those nodes where both have the same sequence of names.

    Nodes inside a child graph get their parent's origin.
    """
    top = [node for node in graph.nodes if node.parent is None]
    origins: dict[int, Origin] = {}
    traced = {at: span.origin for span in trace.spans for at in range(span.first, span.stop)}
    for ours, theirs, count in _agreeing([node.name for node in top], list(trace.names)):
        for step in range(count):
            if theirs + step in traced:
                origins[top[ours + step].index] = traced[theirs + step]
    nodes = []
    for node in graph.nodes:
        if node.parent is not None and node.parent in origins:
            origins[node.index] = origins[node.parent]
        nodes.append(dataclasses.replace(node, origin=origins[node.index]) if node.index in origins else node)
    return dataclasses.replace(graph, nodes=tuple(nodes))


def _agreeing(ours: list[str], theirs: list[str]) -> list[tuple[int, int, int]]:
    """(start in ours, start in theirs, length) of the runs that agree."""
    if ours == theirs:  # the usual case; matching is quadratic where names repeat
        return [(0, 0, len(ours))]
    matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
    return [(block.a, block.b, block.size) for block in matcher.get_matching_blocks()]
