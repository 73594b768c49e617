"""What a call of CUDA that a capture refused is about, and how an exception of a failed capture is shown."""

from __future__ import annotations

import linecache
import re

from cudagraph_doctor import blame
from cudagraph_doctor.graph.illegal import Kind

_OF_CALL = (
    (r"HostAlloc|MallocHost|FreeHost|AllocHost|HostRegister|HostUnregister", Kind.PINNED_ALLOCATION),
    (r"Malloc|MemAlloc|Free|MemPool", Kind.ALLOCATION),
    (r"Synchronize", Kind.SYNCHRONISATION),
    (r"Query|ElapsedTime", Kind.QUERY),
    (r"BeginCapture|GraphLaunch", Kind.NESTED_CAPTURE),
    (r"WaitEvent|EventRecord", Kind.UNCAPTURED_WORK),
    (r"GraphExecDestroy|GraphDestroy|ModuleUnload|LibraryUnload", Kind.DESTROYED_GRAPH),
    (r"Memcpy|Memset", Kind.BLOCKING_COPY),
    (r"EndCapture", Kind.UNKNOWN),
)
"""A pattern in the name of a CUDA call -> what it is, the first that fits."""


_COMPILERS = {"torch._inductor": "torch.compile", "torch._dynamo": "torch.compile", "triton.": "Triton"}
"""Beginning of a module's name -> what it belongs to."""


def kind_of_call(name: str) -> Kind:
    """What a call of CUDA that a capture refused is about."""
    return next((kind for pattern, kind in _OF_CALL if re.search(pattern, name)), Kind.LIBRARY_CALL)


def only_asks(name: str) -> bool:
    """Whether a call of CUDA only asks if a stream captures: on the legacy stream that fails, and does no harm."""
    return re.search(r"IsCapturing|GetCaptureInfo", name) is not None


def compiler(error: BaseException) -> str:
    """The compiler that was at work where it was raised, "" if none was."""
    running = [str(frame.f_globals.get("__name__", "")) for _, frame, _ in blame.frames(error)]
    return next((name for module, name in _COMPILERS.items() if any(r.startswith(module) for r in running)), "")


def message(error: BaseException) -> str:
    """The first line of what it says."""
    return str(error).partition("\n")[0]


def shown(error: BaseException) -> str:
    """What torch by itself shows: the last exception, and the user's line that its own traceback ends at."""
    lines = [(frame, line) for who, frame, line in blame.frames(error) if who == "user"]
    where = ""
    if lines:
        frame, line = lines[-1]
        where = f", at line {line}: {linecache.getline(frame.f_code.co_filename, line).strip()}"
    return f"{type(error).__name__}: {message(error)}{where}"
