"""What a CUDA or HIP API call does, by its name: launches a graph, a kernel, captures, copies, waits.

Names are compared exactly after their version suffixes are gone: `cudaStreamIsCapturing` is a question, not a capture.
"""

from __future__ import annotations

import re
from enum import IntEnum

_SUFFIX = re.compile(r"(_v\d+|_ptsz|_ptds)$")


class Kind(IntEnum):
    """What a call does; stored as a number in the tables of `workspace.py`."""

    OTHER = 0
    GRAPH_LAUNCH = 1
    LAUNCH = 2
    BEGIN_CAPTURE = 3
    END_CAPTURE = 4
    INSTANTIATE = 5
    EXEC_UPDATE = 6
    COPY = 7
    ALLOCATE = 8
    SYNCHRONIZE = 9
    PROFILER_START = 10
    NESTED = 11
    """A driver launch inside a runtime launch that is counted already."""


_BASES = {
    Kind.GRAPH_LAUNCH: "cudaGraphLaunch cuGraphLaunch hipGraphLaunch",
    Kind.LAUNCH: """
        cudaLaunchKernel cudaLaunchKernelExC cudaLaunchCooperativeKernel cudaLaunchCooperativeKernelMultiDevice
        cuLaunchKernel cuLaunchKernelEx cuLaunchCooperativeKernel cuLaunchCooperativeKernelMultiDevice cuLaunch
        cuLaunchGrid cuLaunchGridAsync cudaLaunch
        hipLaunchKernel hipExtLaunchKernel hipModuleLaunchKernel hipExtModuleLaunchKernel hipLaunchCooperativeKernel
        hipModuleLaunchCooperativeKernel hipLaunchKernelExC hipDrvLaunchKernelEx hipHccModuleLaunchKernel
    """,
    Kind.BEGIN_CAPTURE: """
        cudaStreamBeginCapture cudaStreamBeginCaptureToGraph cuStreamBeginCapture cuStreamBeginCaptureToGraph
        hipStreamBeginCapture hipStreamBeginCaptureToGraph
    """,
    Kind.END_CAPTURE: "cudaStreamEndCapture cuStreamEndCapture hipStreamEndCapture",
    Kind.INSTANTIATE: """
        cudaGraphInstantiate cudaGraphInstantiateWithFlags cudaGraphInstantiateWithParams cuGraphInstantiate
        cuGraphInstantiateWithFlags cuGraphInstantiateWithParams
        hipGraphInstantiate hipGraphInstantiateWithFlags hipGraphInstantiateWithParams
    """,
    Kind.EXEC_UPDATE: "cudaGraphExecUpdate cuGraphExecUpdate hipGraphExecUpdate",
    Kind.PROFILER_START: "cudaProfilerStart cuProfilerStart hipProfilerStart",
}
_BY_BASE = {base: kind for kind, bases in _BASES.items() for base in bases.split()}
_BY_START = (
    (re.compile(r"(cuda|cu|hip)GraphExec\w+SetParams"), Kind.EXEC_UPDATE),
    (re.compile(r"(cuda|cu|hip)Mem(cpy|set)|cu(da)?StreamWriteValue"), Kind.COPY),
    (
        re.compile(
            r"(cuda|hip)(Malloc|Free|HostAlloc|HostRegister|HostUnregister|HostMalloc|HostFree)"
            r"|cuMem(Alloc|Free|HostAlloc|HostRegister|Create|Map|Unmap|Release|AddressReserve|SetAccess)"
        ),
        Kind.ALLOCATE,
    ),
    (re.compile(r"(cuda|cu|hip)(Stream|Event|Device|Ctx)Synchronize"), Kind.SYNCHRONIZE),
)


ERRORS = {
    1: "an argument is not valid",
    2: "out of memory",
    400: "a handle is not valid: destroyed, or never made",
    700: "an illegal memory access, in this or earlier work",
    710: "an assertion in a kernel failed, in this or earlier work",
    716: "a misaligned address, in this or earlier work",
    719: "a kernel failed, in this or earlier work",
    801: "not supported: by this device, or in a graph",
    900: "not permitted while a stream is capturing",
    901: "capture invalidated by an earlier error",
    902: "it would have merged two captures",
    903: "the capture was not begun on this stream",
    904: "a stream that joined the capture was not joined back",
    905: "it would have crossed the border of a capture",
    906: "the legacy stream would have had to wait for a capturing stream",
    907: "an event recorded in a capture is still part of it",
    908: "a capture was ended on another thread",
    910: "the graph differs too much from the executable one",
}
"""What the error codes that calls of graphs return mean (CUDA runtime API, cudaError)."""


def describe_error(name: str, code: int) -> str:
    """`cuStreamSynchronize returned 900 (not permitted while a stream is capturing)`."""
    meaning = f" ({ERRORS[code]})" if code in ERRORS else ""
    return f"{base_name(name) or 'a call'} returned {code}{meaning}"


def base_name(name: str) -> str:
    """`cudaGraphLaunch_ptsz_v10000` -> `cudaGraphLaunch`."""
    while (shorter := _SUFFIX.sub("", name)) != name:
        name = shorter
    return name


def kind_of(name: str) -> Kind:
    """What the call of this name does."""
    base = base_name(name)
    known = _BY_BASE.get(base)
    if known is not None:
        return known
    return next((kind for pattern, kind in _BY_START if pattern.match(base)), Kind.OTHER)


def is_api_name(name: str) -> bool:
    """Whether this is the name of a CUDA or HIP call at all."""
    return bool(re.match(r"(cuda|cu|hip)[A-Z]", name))
