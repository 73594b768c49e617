"""Changes parameters of nodes in an instantiated graph, and puts them back.

Only the executable graph (cudaGraphExec_t) is changed, for launches made after; the captured graph, from which the
original values are read, stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.arguments import Rebuilt
from cudagraph_doctor.graph.backend import Edit
from cudagraph_doctor.graph.driver import DriverError, call
from cudagraph_doctor.graph.fields import Field, copy_fields, fill_fields
from cudagraph_doctor.graph.functions import Kernels, Unreadable, kernel_arguments
from cudagraph_doctor.graph.model import NodeKind
from cudagraph_doctor.graph.nodes import Placed

Values = Mapping[int, bytes]
"""Parameter index -> its new bytes."""


class Patches:
    """The values that differ from the captured ones in one executable graph.

    Args:
        placed: the nodes of the captured graph.
        executable: the handle of the executable graph now, None if there is none any more.
    """

    def __init__(self, placed: Sequence[Placed], executable: Callable[[], int | None]) -> None:
        self._placed = placed
        self._executable = executable
        self._applied: dict[int, dict[int, bytes]] = {}
        self._kernels = Kernels()

    @contextmanager
    def applied(self, edits: Sequence[Edit]) -> Iterator[None]:
        """The executable graph has these values inside the block. Blocks may nest: the inner one wins.

        Raises Inconclusive, with nothing changed, if one of the edits cannot be made.
        """
        wanted: dict[int, dict[int, bytes]] = {}
        for edit in edits:
            wanted.setdefault(edit.node, {})[edit.param] = edit.data
        with ExitStack() as undo:
            for index, values in wanted.items():
                before = self._applied.get(index, {})
                self._set(index, {**before, **values})
                undo.callback(self._put_back, index, before)
            yield

    def _put_back(self, index: int, values: dict[int, bytes]) -> None:
        if self._executable() is not None:  # the user may have dropped the graph meanwhile
            self._set(index, values)

    def _set(self, index: int, values: dict[int, bytes]) -> None:
        executable = self._executable()
        if executable is None:
            raise Inconclusive(
                "the graph cannot be patched: it is not instantiated", fix="replay it once, or call instantiate()"
            )
        if not 0 <= index < len(self._placed):
            raise Inconclusive(f"the graph has no node {index}", fix="read the graph again")
        node = self._placed[index]
        try:
            self._write(executable, node, values)
        except (DriverError, Unreadable) as reason:
            raise Inconclusive(
                f"node {index} ({node.kind}) cannot be patched in the instantiated graph",
                seen=str(reason),
                fix="judge this node by a fresh capture instead",
            ) from reason
        self._applied[index] = values

    def _write(self, executable: int, node: Placed, values: Values) -> None:
        if node.parent is not None:
            raise Unreadable("nodes inside a child or conditional graph are not patched")
        match node.kind:
            case NodeKind.KERNEL:
                self._write_kernel(executable, node, values)
            case NodeKind.MEMCPY:
                copy = call("cuGraphMemcpyNodeGetParams", node.handle)
                _set_fields(copy, copy_fields(copy), values)
                call("cuGraphExecMemcpyNodeSetParams", executable, node.handle, copy, call("cuCtxGetCurrent"))
            case NodeKind.MEMSET:
                fill = call("cuGraphMemsetNodeGetParams", node.handle)
                _set_fields(fill, fill_fields(fill), values)
                call("cuGraphExecMemsetNodeSetParams", executable, node.handle, fill, call("cuCtxGetCurrent"))
            case _:
                raise Unreadable(f"{node.kind} nodes are not patched")

    def _write_kernel(self, executable: int, node: Placed, values: Values) -> None:
        params = call("cuGraphKernelNodeGetParams", node.handle)
        arguments, packed = kernel_arguments(params, self._kernels)
        _check(values, [len(argument.data) for argument in arguments])
        rebuilt = Rebuilt(arguments, values, packed)
        if packed is None:
            params.kernelParams = rebuilt.address
        else:
            params.extra = rebuilt.address
        call("cuGraphExecKernelNodeSetParams", executable, node.handle, params)


def _set_fields(params: Any, fields: Sequence[Field], values: Values) -> None:
    _check(values, [8] * len(fields))
    for index, data in values.items():
        setattr(params, fields[index].attribute, int.from_bytes(data, "little"))


def _check(values: Values, sizes: Sequence[int]) -> None:
    """Refuse values that do not fit the node's parameters."""
    for index, data in values.items():
        if not 0 <= index < len(sizes):
            raise Unreadable(f"it has {len(sizes)} parameters, none with index {index}")
        if len(data) != sizes[index]:
            raise Unreadable(f"parameter {index} has {sizes[index]} bytes, not {len(data)}")
