"""The few CUDA driver calls that the backend makes, whichever cuda-bindings and driver are installed."""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from typing import Any

from cudagraph_doctor.graph.illegal import CaptureStatus


class DriverError(Exception):
    """A driver call failed, or this driver or cuda-bindings does not have it."""

    def __init__(self, call: str, reason: str, code: int | None = None) -> None:
        super().__init__(f"{call}: {reason}")
        self.code = code
        """The CUresult, or None if the call does not exist here."""


OLDEST = (12, 4)
"""The CUDA version from which a driver tells the layout of a kernel's parameters."""
INVALID_VALUE = 1
"""CUDA_ERROR_INVALID_VALUE, which ends the enumeration of a kernel's parameters."""


@functools.cache
def bindings() -> Any:
    """The module `cuda.bindings.driver`. Raises ImportError without cuda-bindings."""
    return importlib.import_module("cuda.bindings.driver")


def call(name: str, *args: Any) -> Any:
    """Call a driver function: None, its one result, or a tuple of its results, the status taken off.

    Raises:
        DriverError: it returned an error, or it does not exist here.
    """
    function = getattr(bindings(), name, None)
    if function is None:
        raise DriverError(name, "not in this version of cuda-bindings")
    try:
        status, *results = function(*args)
    except (RuntimeError, ValueError) as error:  # not in this driver; an enum value newer than these bindings
        raise DriverError(name, str(error)) from error
    if int(status) != 0:
        raise DriverError(name, getattr(status, "name", str(status)), int(status))
    return None if not results else results[0] if len(results) == 1 else tuple(results)


def version() -> tuple[int, int]:
    """The newest CUDA version that the driver supports. Raises DriverError if there is no driver."""
    number = int(call("cuDriverGetVersion"))
    return number // 1000, number % 1000 // 10


def _newest(*names: str) -> str:
    """The first of the names that these bindings have: 12.x suffixes what 13.x has made the default."""
    return next((name for name in names if hasattr(bindings(), name)), names[-1])


def node_count(graph: Any) -> int:
    """Number of nodes of a graph, child graphs not descended into."""
    return int(call("cuGraphGetNodes", graph, 0)[1])


def nodes_of(graph: Any) -> list[Any]:
    """The graph's nodes, in order of creation."""
    count = node_count(graph)
    return list(call("cuGraphGetNodes", graph, count)[0])[:count] if count else []


def edges_of(graph: Any) -> list[tuple[int, int]]:
    """Handles (from, to) of the graph's edges."""
    # The unsuffixed call of 12.x refuses graphs with programmatic launches, which cuBLAS makes on Hopper.
    name = _newest("cuGraphGetEdges_v2", "cuGraphGetEdges")
    count = int(call(name, graph, 0)[-1])
    if not count:
        return []
    sources, targets, *_ = call(name, graph, count)
    return [(int(source), int(target)) for source, target in zip(sources, targets, strict=True)]


LEGACY_DEPENDENCY = 906
"""CUDA_ERROR_STREAM_CAPTURE_IMPLICIT."""
_STATUSES = (CaptureStatus.NONE, CaptureStatus.ACTIVE, CaptureStatus.INVALIDATED)
"""By CUstreamCaptureStatus."""


def capture_of(stream: int) -> tuple[int, Any] | None:
    """(capture id, graph being captured) of a stream that captures, None if it does not."""
    status, capture_id, graph, *_ = call(_newest("cuStreamGetCaptureInfo_v3", "cuStreamGetCaptureInfo"), stream)
    return (int(capture_id), graph) if _STATUSES[int(status)] is CaptureStatus.ACTIVE else None


def capture_status(stream: int) -> CaptureStatus:
    """Whether a stream captures."""
    try:
        status, *_ = call(_newest("cuStreamGetCaptureInfo_v3", "cuStreamGetCaptureInfo"), stream)
    except DriverError as error:
        if error.code == LEGACY_DEPENDENCY:  # the legacy stream, while another one captures: it does not itself
            return CaptureStatus.NONE
        raise
    return _STATUSES[int(status)]


@dataclass(frozen=True, slots=True)
class Allocation:
    """What the driver knows of the memory around an address."""

    on_host: bool
    """Page-locked host memory; otherwise device (or managed) memory."""
    address: int
    bytes: int


def allocation_at(address: int) -> Allocation | None:
    """The allocation that holds `address`, None if CUDA does not know it (pageable host memory, or nothing at all)."""
    attribute = bindings().CUpointer_attribute
    try:
        kind = int(call("cuPointerGetAttribute", attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address))
        start = int(call("cuPointerGetAttribute", attribute.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address))
        size = int(call("cuPointerGetAttribute", attribute.CU_POINTER_ATTRIBUTE_RANGE_SIZE, address))
    except DriverError:
        return None
    return Allocation(on_host=kind == 1, address=start, bytes=size)  # CU_MEMORYTYPE_HOST
