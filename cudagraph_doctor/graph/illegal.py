"""What is said of captures: classes of operations that they cannot take, places of memory, statuses. No torch."""

from __future__ import annotations

from enum import Enum, StrEnum


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
    LEFT_OUT = "work that is left out of the capture"
    UNKNOWN = "unknown"


class Place(Enum):
    """Where a storage lies."""

    DEVICE = "device"
    HOST = "host"
    PINNED = "pinned"


class CaptureStatus(Enum):
    """What a stream says of itself, in CUDA's words."""

    NONE = "none"
    ACTIVE = "active"
    INVALIDATED = "invalidated"
