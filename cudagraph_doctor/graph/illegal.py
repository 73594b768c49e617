"""The classes of operations that a capture cannot take. Plain data, no torch."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """Why an operation cannot be captured, or is lost on the graph. The value is a noun for reports."""

    HOST_READ = "host read"
    SHAPE_FROM_VALUES = "shape that depends on values"
    PAGEABLE_COPY = "copy between pageable host memory and the device"
    BLOCKING_COPY = "copy that the host waits for"
    SYNCHRONISATION = "synchronisation"
    QUERY = "query"
    GENERATOR = "generator"
    ALLOCATION = "allocation past torch's allocator"
    PINNED_ALLOCATION = "allocation of page-locked memory"
    UNJOINED_FORK = "fork that is not joined"
    UNCAPTURED_WORK = "dependency on work outside the capture"
    NESTED_CAPTURE = "capture inside a capture"
    OTHER_THREAD = "call from another thread"
    DESTROYED_GRAPH = "destruction of an older graph"
    FIRST_USE = "first use"
    OUTSIDE_CAPTURE = "work on a stream that is not captured"
    HOST_SOURCE = "host memory that nobody keeps alive"
    LIBRARY_CALL = "library call"
    UNKNOWN = "unknown"
