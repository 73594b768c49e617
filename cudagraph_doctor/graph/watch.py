"""Watches `torch.cuda.CUDAGraph`: a subclass that keeps the cudaGraph_t readable and tells of captures and replays.

To the user it behaves as the original: without `keep_graph=True` it is instantiated when the capture ends and refuses
what torch refuses then. `installed` puts it where torch and user code look the class up.

A capture that fails leaves torch's allocator as if it went on; then the pool it allocated from is reported, and the
graph is kept for ever (see `lifetime`).
"""

from __future__ import annotations

import importlib
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from cudagraph_doctor.graph.backend import GraphLog, LiveGraph
from cudagraph_doctor.graph.callsite import callsite
from cudagraph_doctor.graph.lifetime import hold, let_go


def watching(
    base: Any,
    log: GraphLog,
    captured: Callable[[LiveGraph, Any], None],
    new_pool: Callable[[], Any],
    failed: Callable[[Any], None],
) -> Any:
    """A subclass of `base` (torch's CUDAGraph class) that reports to `log`.

    Args:
        base: the class to stand in for.
        log: told of each successful capture and of each replay.
        captured: called with the new LiveGraph and the graph, before the log is told.
        new_pool: makes the handle of a pool, for captures that the user gave none: only so is it known if they fail.
        failed: called with the pool of a capture that CUDA refused to begin or to end.
    """

    class CUDAGraph(base):  # type: ignore[misc]  # the base is only known at run time
        __doc__ = base.__doc__
        _doctor_live: LiveGraph | None = None
        _doctor_pool: Any = (0, 0)
        """What the capture allocates from. (0, 0): the default pool, which is no capture's."""

        def __init__(self, keep_graph: bool = False) -> None:
            super().__init__(keep_graph=True)
            self._doctor_user_keeps = keep_graph

        def capture_begin(self, pool: Any = None, *args: Any, **kwargs: Any) -> None:
            self._doctor_line = callsite()
            self._doctor_handling = id(sys.exc_info()[1])
            pool = new_pool() if pool is None else pool
            hold(self)
            with _reporting(failed, pool):
                super().capture_begin(pool, *args, **kwargs)
            self._doctor_pool = pool
            self._doctor_began = time.perf_counter()

        def capture_end(self) -> None:
            with _reporting(failed, self._doctor_pool):
                super().capture_end()
            captured_by = time.perf_counter()
            let_go(self)
            if not self._doctor_user_keeps:
                super().instantiate()
            ready = time.perf_counter()
            # The body of `with torch.cuda.graph(...)` raised: the graph holds a part of the step only.
            if id(sys.exc_info()[1]) != self._doctor_handling:
                return
            live = LiveGraph(len(log.graphs), weakref.ref(self), captured_at=self._doctor_line)
            live.capture_s = captured_by - self._doctor_began
            live.instantiate_s = None if self._doctor_user_keeps else ready - captured_by
            self._doctor_live = live
            captured(live, self)
            log.captured(live)

        def instantiate(self) -> None:
            if not self._doctor_user_keeps:
                raise RuntimeError("instantiate() is intended to be called by the user only when keep_graph=true")
            began = time.perf_counter()
            super().instantiate()
            if self._doctor_live is not None:
                self._doctor_live.instantiate_s = time.perf_counter() - began

        def raw_cuda_graph(self) -> int:
            if not self._doctor_user_keeps:
                raise RuntimeError(
                    "You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized with "
                    "keep_graph=true"
                )
            return int(super().raw_cuda_graph())

        def replay(self) -> None:
            if self._doctor_live is not None:
                log.replaying(self._doctor_live)
            super().replay()

        def reset(self) -> None:
            self._doctor_live = None
            super().reset()

    CUDAGraph.__qualname__ = base.__qualname__
    CUDAGraph.__module__ = base.__module__
    return CUDAGraph


@contextmanager
def _reporting(failed: Callable[[Any], None], pool: Any) -> Iterator[None]:
    """Report `pool` if CUDA refuses. What torch itself refuses, on another stream say, leaves the capture going."""
    try:
        yield
    except torch.AcceleratorError:
        failed(pool)
        raise


def graph_of(live: LiveGraph) -> Any | None:
    """The CUDAGraph, None if it was garbage-collected, reset or captured anew since."""
    graph = live.graph()
    return graph if graph is not None and graph._doctor_live is live else None


@contextmanager
def installed(watched: Any, where: tuple[str, ...] = ("torch.cuda", "torch.cuda.graphs")) -> Iterator[None]:
    """`CUDAGraph` of each of these modules is `watched` inside the block."""
    name = "CUDAGraph"
    modules = [importlib.import_module(module) for module in where]
    originals = [getattr(module, name) for module in modules]
    for module in modules:
        setattr(module, name, watched)
    try:
        yield
    finally:
        for module, original in zip(modules, originals, strict=True):
            setattr(module, name, original)
