"""What was seen of a target's captures. Plain data, no torch: made by `observe`, read by `judging`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.illegal import Kind

CODES = {
    900: "cudaErrorStreamCaptureUnsupported",
    901: "cudaErrorStreamCaptureInvalidated",
    902: "cudaErrorStreamCaptureMerge",
    903: "cudaErrorStreamCaptureUnmatched",
    904: "cudaErrorStreamCaptureUnjoined",
    905: "cudaErrorStreamCaptureIsolation",
    906: "cudaErrorStreamCaptureImplicit",
    907: "cudaErrorCapturedEvent",
    908: "cudaErrorStreamCaptureWrongThread",
}
"""CUDA's errors about captures, by code."""


class ToldBy(StrEnum):
    """Which instrument named the operation that broke a capture."""

    CUPTI = "CUPTI"
    """The first CUDA API call that returned an error."""
    CALL = "the call that raised"
    """An operator that the dispatcher saw, or a wrapped function of torch."""
    STATUS = "the status of the capture"
    """Asked after each operation."""
    LEDGER = "the ledger of forks and joins"
    TRACEBACK = "the traceback"
    """Nothing but the exception."""
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that the step does while a capture is open."""

    name: str
    """"aten._local_scalar_dense.default", "Tensor.tolist", "torch.cuda.synchronize"."""
    kind: Kind
    location: Location | None
    """The user's innermost line that led to it."""
    callers: tuple[Location, ...] = ()
    """The lines that called that one, innermost first."""
    capture: int = 0
    """Which capture of the target, 0, 1, ..."""
    position: int = 0
    """Place in the order of execution within its capture."""
    ordinal: int = 0
    """The how manieth of this name from this line within its capture, from 0."""
    times: int = 1
    """How often it was done from this line, in all captures."""
    module: str = ""
    """Path of the nn.Module that was running, "" outside all of them."""
    thread: str = ""
    """Name of the thread, "" for the one that captures."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one capture failed."""

    operation: Operation | None
    """The culprit, if it could be named."""
    told_by: ToldBy
    message: str
    """Of the first error of the exception chain, its first line."""
    code: int | None = None
    """A key of `CODES`; None where torch itself refused."""
    api: str = ""
    """The CUDA API call that returned the code, where CUPTI told."""
    without_threads: bool | None = None
    """Whether the capture goes through in mode "thread_local", which lets other threads do as they like; None if that
    was not tried."""
    compiler: str = ""
    """"torch.compile" or "Triton", where it was at work when this happened."""
    plain: str = ""
    """What torch by itself shows for this capture: the last exception, with the line it names."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of the target's capturing code."""

    watched: bool
    """With the dispatcher watched; else nothing was on that changes what runs."""
    served: int = 0
    """How many operations got their values from the dry run instead of being done."""
    refusal: Refusal | None = None
    nodes: tuple[int | None, ...] = ()
    """Nodes of each graph that was captured, in order."""


@dataclass(frozen=True, slots=True)
class FirstUse:
    """A capture that failed only because something had not been done once before it."""

    refusal: Refusal
    attempts: tuple[Attempt, ...]
    """After 0, 1, 2, ... eager runs of the very body that is captured, in this process."""


@dataclass(frozen=True, slots=True)
class EmptyGraph:
    """A capture that ended well and holds no node."""

    location: Location | None
    """Where it was opened."""
    launches: int
    """Operators that the dry run saw launch something in it."""


@dataclass(frozen=True, slots=True)
class StrayCasts:
    """Weights that autocast cast and kept, and that were read elsewhere: in another capture, or by eager code."""

    read: Location | None
    """Where the first of them is read."""
    made: Location | None
    """Where the first of them was cast."""
    opened: Location | None
    """Where the captures that read them were opened; None for eager code."""
    modules: tuple[str, ...]
    """Paths of the nn.Modules that were running when they were cast."""
    weights: int
    captures: int
    """How many captures read them, 0 for eager code."""
    made_in_capture: bool
    """They were cast while another capture was open, which computes nothing: only replays of its graph write them."""
    gone: bool
    """Their memory was free again when the target had captured."""


@dataclass(frozen=True, slots=True)
class HostValue:
    """A host value that the captured body writes, and that is read outside of the graph."""

    path: str
    change: str
    """From what to what the capture moved it."""
    written: Location | None
    read: Location


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What the step does eagerly, and not when it is told that it is captured; one record a line."""

    harmful: tuple[Operation, ...] = ()
    """Without it, results or memory that outlives the step are others."""
    harmless: tuple[Operation, ...] = ()
    """No harm was shown, or something else is done instead."""
    not_compared: str = ""
    """Why nothing could be compared, a clause."""


@dataclass(frozen=True, slots=True)
class Observation:
    """All that was seen."""

    form: str
    """"loop", "loop with its own runner", "engine"."""
    captures: int
    """Captures that the target makes."""
    operations: int = 0
    """Operators and calls that ran while a capture was open, in the dry run."""
    attempts: tuple[Attempt, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    """Of the watched captures, in the order of execution: each names one operation that is illegal."""
    first_uses: tuple[FirstUse, ...] = ()
    suspected: tuple[Operation, ...] = ()
    """Candidates that no capture came to."""
    legal: tuple[Operation, ...] = ()
    """Candidates that a capture took."""
    outside: tuple[Operation, ...] = ()
    """Work on streams that were not captured while a capture was open."""
    host_sources: tuple[Operation, ...] = ()
    """Copies in the graph from host memory that is gone after the capture, or pageable."""
    empty: tuple[EmptyGraph, ...] = ()
    host_values: tuple[HostValue, ...] = ()
    moved: tuple[str, ...] = ()
    """Paths of all host values that moved while a capture was open."""
    left_out: LeftOut = LeftOut()
    casts: tuple[StrayCasts, ...] = ()
    autocast_from_before: bool = False
    """Whether an autocast was around a capture since before the target began to capture."""
    instrument: str = ""
    """Why CUPTI did not tell, a clause; "" if it did."""
    out_of_reach: tuple[str, ...] = ()
    """What was done in captures and the emulation has no stand-in for."""
    complete: bool = True
    """Whether the capture went through once everything illegal was served."""
