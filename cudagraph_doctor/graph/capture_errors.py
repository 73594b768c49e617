"""Reads exceptions of failed captures: which of the chain came first, its CUDA code, what it tells of. No torch."""

from __future__ import annotations

from collections.abc import Iterator

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
