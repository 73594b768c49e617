"""Tells of each graph node in the moment of its creation, on the thread that creates it. Needs cupti-python.

CUPTI serves one subscriber a process: there is none left under nsys, or once torch.profiler has run.
"""

from __future__ import annotations

import functools
import importlib
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
    errors: list[Exception] = []

    def called(user: object, domain: int, callback: int, data: object) -> None:
        try:
            heard()
        except Exception as error:  # must not escape into CUDA
            errors.append(error)

    try:
        subscriber = api.subscribe(called, None)
    except (api.cuptiError, RuntimeError) as error:  # RuntimeError: it finds no libcupti
        raise Unavailable(f"CUPTI takes no subscriber ({error})") from error
    try:
        api.enable_callback(1, subscriber, api.CallbackDomain.RESOURCE, api.CallbackIdResource.GRAPHNODE_CREATED)
        yield
    finally:
        api.unsubscribe(subscriber)
    if errors:
        raise errors[0]
