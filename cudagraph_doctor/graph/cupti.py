"""Tells of graph nodes as they are created, and of CUDA API calls that fail in a capture. Needs cupti-python.

Both are told in the moment that it happens, on the thread that does it. CUPTI serves one subscriber a process: there is
none left under nsys, or once torch.profiler has run.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


_WITHOUT_STATUS = ("cudaGetErrorString", "cudaGetErrorName", "cudaCreateChannelDesc")
"""Calls that return no status: what CUPTI gives as the address of theirs must not be read."""


@contextmanager
def failing_calls(heard: Callable[[str, int], None]) -> Iterator[None]:
    """`heard(name, code)` is called inside the block when a call of CUDA returns an error about captures (900 to 908).

    A call that fails inside another is told first. `heard` runs inside of CUDA: it must call neither CUDA nor torch.
    What it raises is raised at the end of the block. Raises Unavailable before the block is entered.
    """
    api = _api()

    def called(data: Any) -> None:
        if data.callback_site != api.ApiCallbackSite.API_EXIT:
            return
        address, name = data.function_return_value, data.function_name
        if not address or name.startswith(_WITHOUT_STATUS):
            return
        code = ctypes.c_int.from_address(address).value
        if 900 <= code <= 908:
            heard(plain_name(name), code)

    def enable(subscriber: int) -> None:
        for domain in (api.CallbackDomain.RUNTIME_API, api.CallbackDomain.DRIVER_API):
            api.enable_domain(1, subscriber, domain)

    with _subscribed(api, called, enable):
        yield


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
