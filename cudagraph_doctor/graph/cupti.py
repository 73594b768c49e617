"""Tells of graph nodes as they are created, of kernels as they are launched, of CUDA API calls that fail in a capture.

Needs cupti-python. All is told in the moment that it happens, on the thread that does it. CUPTI serves one subscriber a
process: there is none left under nsys, or once torch.profiler has run.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


class Unavailable(Exception):
    """CUPTI cannot be used in this process; the text is the reason, a clause."""


@functools.cache
def _api() -> Any:
    """The module `cupti.cupti`. Raises Unavailable."""
    name = "cupti.cupti"
    if name in sys.modules:  # to subscribe, even in vain, takes the callback away from who has it
        raise Unavailable("the target uses cupti-python itself")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unavailable(f"cupti-python cannot be imported ({error})") from error


@contextmanager
def node_creations(heard: Callable[[], None]) -> Iterator[None]:
    """`heard` is called inside the block whenever a node is created in any graph.

    What it raises is raised at the end of the block. Raises Unavailable before the block is entered.
    """
    api = _api()

    def enable(subscriber: int) -> None:
        api.enable_callback(1, subscriber, api.CallbackDomain.RESOURCE, api.CallbackIdResource.GRAPHNODE_CREATED)

    with _subscribed(api, lambda data: heard(), enable):
        yield


_NOT_TOLD_OF = re.compile(
    r"cuda[GS]etDevice$|LastError$|IsCapturing|GetCaptureInfo|ExchangeStreamCaptureMode|cuCtx[GS]et|PrimaryCtxGetState"
)
"""Calls that ask or say which device, error or capture there is. What captures refuse is never among them, and torch
makes them in destructors, also while an exception is on its way from C++ to Python: code that runs in Python then, as
callbacks do, loses the exception."""

_WITHOUT_STATUS = ("cudaGetErrorString", "cudaGetErrorName", "cudaCreateChannelDesc")
"""Calls that return no status: what CUPTI gives as the address of theirs must not be read."""


@contextmanager
def failing_calls(heard: Callable[[str, int], None]) -> Iterator[None]:
    """`heard(name, code)` is called inside the block when a call of CUDA returns an error about captures (900 to 908).

    Of calls inside of one another, such as `cuMemAlloc` in `cudaMalloc`, the outermost that fails is told, with its own
    code. `heard` runs inside of CUDA: it must call neither CUDA nor torch. What it raises is raised at the end of the
    block. Raises Unavailable before the block is entered.
    """
    api = _api()
    threads = threading.local()

    def called(data: Any) -> None:
        nest: _Nest | None = getattr(threads, "nest", None)
        if data.callback_site != api.ApiCallbackSite.API_EXIT:
            if nest is None:
                nest = threads.nest = _Nest()
            nest.depth += 1
            return
        if nest is None:  # it began before the block
            nest = _Nest(depth=1)
        nest.leave(data.function_name, _code(data))
        if nest.depth == 0:
            threads.nest = None
            if nest.failed is not None:
                heard(*nest.failed)

    def enable(subscriber: int) -> None:
        domains, calls = api.CallbackDomain, (api.runtime_api_trace_cbid, api.driver_api_trace_cbid)
        for domain, names in zip((domains.RUNTIME_API, domains.DRIVER_API), calls, strict=True):
            api.enable_domain(1, subscriber, domain)
            for call in names:
                if _NOT_TOLD_OF.search(plain_name(call.name)):
                    api.enable_callback(0, subscriber, domain, call)

    with _subscribed(api, called, enable):
        yield


@contextmanager
def kernel_launches(heard: Callable[[str], None]) -> Iterator[None]:
    """`heard(kernel)` is called inside the block whenever a kernel is launched or captured, by its name as compiled.

    What the runtime launches is heard twice, of the runtime and of the driver: counts serve to compare runs.
    `heard` runs inside of CUDA: it must call neither CUDA nor torch. What it raises is raised at the end of the block.
    Raises Unavailable before the block is entered.
    """
    api = _api()

    def called(data: Any) -> None:
        if data.callback_site == api.ApiCallbackSite.API_ENTER:
            heard(data.symbol_name)

    def enable(subscriber: int) -> None:
        domains, calls = api.CallbackDomain, (api.runtime_api_trace_cbid, api.driver_api_trace_cbid)
        for domain, names in zip((domains.RUNTIME_API, domains.DRIVER_API), calls, strict=True):
            for call in names:
                if _LAUNCHES.search(call.name):
                    api.enable_callback(1, subscriber, domain, call)

    with _subscribed(api, called, enable):
        yield


_LAUNCHES = re.compile(r"cu(da)?Launch(Cooperative)?Kernel(Ex|ExC)?(_ptsz)?(_v\d+)?$")


@dataclass(slots=True)
class _Nest:
    """Calls of CUDA that one thread is inside of."""

    depth: int = 0
    failed: tuple[str, int] | None = None
    """Name and code of the outermost that failed so far, of several the first."""
    _at: int = 0

    def leave(self, name: str, code: int) -> None:
        """The innermost call returns."""
        if 900 <= code <= 908 and (self.failed is None or self.depth < self._at):
            self.failed, self._at = (plain_name(name), code), self.depth
        self.depth -= 1


def _code(data: Any) -> int:
    """What a call returned; 0 if it returns no status."""
    address = data.function_return_value
    if not address or data.function_name.startswith(_WITHOUT_STATUS):
        return 0
    return ctypes.c_int.from_address(address).value


def plain_name(name: str) -> str:
    """`cudaStreamSynchronize` of `cudaStreamSynchronize_v3020`, `cuMemAlloc` of `cuMemAlloc_v2`."""
    return re.sub(r"(_v\d+|_ptsz|_ptds)+$", "", name)


@contextmanager
def _subscribed(api: Any, heard: Callable[[Any], None], enable: Callable[[int], None]) -> Iterator[None]:
    errors: list[Exception] = []

    def called(user: object, domain: int, callback: int, data: object) -> None:
        try:
            heard(data)
        except Exception as error:  # must not escape into CUDA
            errors.append(error)

    try:
        subscriber = api.subscribe(called, None)
    except (api.cuptiError, RuntimeError) as error:  # RuntimeError: it finds no libcupti
        raise Unavailable(f"CUPTI takes no subscriber ({error})") from error
    try:
        enable(subscriber)
        yield
    finally:
        api.unsubscribe(subscriber)
    if errors:
        raise errors[0]
