"""Kernel functions as the driver knows them: names, parameter layouts, and the arguments of a kernel node."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from cudagraph_doctor.graph.arguments import Argument, packed_buffer, read_array, split_packed
from cudagraph_doctor.graph.driver import INVALID_VALUE, DriverError, call


class Unreadable(Exception):
    """A node whose parameters cannot be read; the text is the reason, a clause for `GraphNode.unreadable`."""


class Kernels:
    """Facts about kernel functions, asked once a function. Handles are only good while their module is loaded."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], str] = {}
        self._layouts: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {}

    def name(self, params: Any) -> str:
        """The kernel's name, mangled. Raises Unreadable."""
        key = (int(params.func), int(params.kern))
        if key not in self._names:
            raw = _first_that_knows(params, lambda family, handle: call(f"{family}GetName", handle))
            self._names[key] = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
        return self._names[key]

    def layout(self, params: Any) -> tuple[tuple[int, int], ...]:
        """(offset, size) of each parameter. Raises Unreadable."""
        key = (int(params.func), int(params.kern))
        if key not in self._layouts:
            self._layouts[key] = _first_that_knows(params, _parameter_layout)
        return self._layouts[key]


def _first_that_knows(params: Any, ask: Callable[[str, Any], Any]) -> Any:
    """Ask about the node's CUfunction, or else its CUkernel: a node may carry either."""
    reasons = []
    for family, handle in (("cuFunc", params.func), ("cuKernel", params.kern)):
        if int(handle):
            try:
                return ask(family, handle)
            except DriverError as error:
                reasons.append(str(error))
    raise Unreadable("the driver does not know the kernel's function: " + "; ".join(reasons or ["no handle"]))


def _parameter_layout(family: str, handle: Any) -> tuple[tuple[int, int], ...]:
    layout: list[tuple[int, int]] = []
    while True:
        try:
            offset, size = call(f"{family}GetParamInfo", handle, len(layout))
        except DriverError as error:
            if error.code == INVALID_VALUE:  # one past the last
                return tuple(layout)
            raise
        layout.append((int(offset), int(size)))


def kernel_arguments(params: Any, kernels: Kernels) -> tuple[tuple[Argument, ...], bytes | None]:
    """(arguments, the whole buffer if they are packed) of a kernel node. Raises Unreadable."""
    if int(params.extra):
        try:
            buffer = packed_buffer(int(params.extra), ctypes.string_at)
        except ValueError as error:
            raise Unreadable(str(error)) from error
        return split_packed(buffer, kernels.layout(params)), buffer
    layout = kernels.layout(params)
    if layout and not int(params.kernelParams):
        raise Unreadable("the driver does not give the kernel's arguments")
    return read_array(int(params.kernelParams), layout, ctypes.string_at), None
