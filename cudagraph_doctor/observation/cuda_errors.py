"""Reads exceptions of failed captures: which of the chain came first, its CUDA code, and what class it tells of."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator

from cudagraph_doctor import blame
from cudagraph_doctor.graph.illegal import Kind

_TEXTS = {
    "not permitted when stream is capturing": 900,
    "failed due to a previous error during capture": 901,
    "merge of two independent capture sequences": 902,
    "merge of separate capture sequences": 902,
    "capture was not initiated in this stream": 903,
    "unjoined work": 904,
    "dependency created on uncaptured work": 905,
    "legacy stream": 906,
    "on an event last recorded in a capturing stream": 907,
    "thread-local capture sequence from another thread": 908,
}
"""A part of CUDA's message -> its code."""

_OF_CODE = {
    904: Kind.UNJOINED_FORK,
    905: Kind.UNCAPTURED_WORK,
    906: Kind.UNCAPTURED_WORK,
    907: Kind.UNCAPTURED_WORK,
    908: Kind.OTHER_THREAD,
}

_OF_TORCH = {
    "Cannot copy between CPU and CUDA tensors during CUDA graph capture": Kind.PAGEABLE_COPY,
    "Cannot call CUDAGeneratorImpl": Kind.GENERATOR,
    "CUDAGeneratorImpl::set_current_seed can be called": Kind.GENERATOR,
    "Attempt to increase offset for a CUDA generator": Kind.GENERATOR,
    "RNG op during graph capture": Kind.GENERATOR,
    "Cannot prepare for replay during capturing stage": Kind.NESTED_CAPTURE,
    "No warmup iterations occurred before capture": Kind.FIRST_USE,
    "stale reference to the default stream": Kind.UNCAPTURED_WORK,
    "freeAsync() was called on an uncaptured allocation": Kind.ALLOCATION,
    "CUDA graphs must be captured on a non-default stream": Kind.UNCAPTURED_WORK,
    "Capture must end on the same stream it began on": Kind.UNCAPTURED_WORK,
}
"""A part of torch's own refusals -> what they are about."""


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


def is_of_torch(error: BaseException) -> bool:
    """Whether torch refused by itself, before CUDA was asked."""
    return code_of(error) is None and kind_of(error) is not None


def code_of(error: BaseException) -> int | None:
    """The CUDA code (900 to 908) of one exception, None if it is no error about a capture."""
    code = getattr(error, "error_code", None)
    if isinstance(code, int) and 900 <= code <= 908:
        return code
    text = str(error)
    return next((code for part, code in _TEXTS.items() if part in text), None)


def kind_of(error: BaseException) -> Kind | None:
    """What an exception says of its cause; UNKNOWN if only that a capture was broken, None if it is about none."""
    text = str(error)
    for part, kind in _OF_TORCH.items():
        if part in text:
            return kind
    code = code_of(error)
    return None if code is None else _OF_CODE.get(code, Kind.UNKNOWN)


def chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and what it came from, latest first."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def first(error: BaseException) -> BaseException | None:
    """The earliest error about a capture in the chain; None if there is none.

    "Failed due to a previous error" (901) tells of an earlier one. If CUDA did not say it in the chain, the earliest
    exception did in its own words: a library's, of which the capture died.
    """
    links = list(chain(error))
    about = [link for link in links if kind_of(link) is not None]
    culprits = [link for link in about if code_of(link) != 901] or (links if about else [])
    return culprits[-1] if culprits else None


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
