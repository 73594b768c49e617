"""One capture under way: records operators instead of letting them count.

A recorded operator is executed too, because its Python caller needs tensors to go on with; what it changed in memory
that existed before is put back at the end, and what it allocated is zeroed, since under CUDA nothing has run yet.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import ExitStack, nullcontext
from typing import Any

import torch

from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.callsite import callsite
from cudagraph_doctor.graph.emulation.device import EmulatedDevice
from cudagraph_doctor.graph.emulation.faults import cuda_error
from cudagraph_doctor.graph.emulation.generators import drawing_from
from cudagraph_doctor.graph.emulation.memory import Memory, bytes_view, memory_of, place_of, storage_of
from cudagraph_doctor.graph.emulation.recording import Node, Recording
from cudagraph_doctor.graph.illegal import Place
from cudagraph_doctor.graph.model import NodeKind, Origin
from cudagraph_doctor.graph.operators import Operator, tensors_in
from cudagraph_doctor.graph.origins import ModulePath


class Capture:
    """From capture_begin to capture_end.

    Args:
        device: the emulated device.
        pool: identity of the memory pool, as text.
        generators: those registered on the graph.
        error_mode: "global", "thread_local" or "relaxed", as CUDA has it.
    """

    def __init__(
        self, device: EmulatedDevice, pool: str, generators: Iterable[torch._C.Generator], error_mode: str
    ) -> None:
        self.origin = device.current_stream
        self.tails: dict[int, frozenset[int]] = {self.origin: frozenset()}
        """For each stream that takes part: the nodes that its next one waits for."""
        self.opened_at = callsite()
        self.pool = pool
        self.error_mode = error_mode
        self.thread = threading.get_ident()
        self.generators: list[torch._C.Generator] = [device.generator, *generators]
        self._device = device
        self._states = [generator.get_state() for generator in self.generators]
        self._forks: dict[int, Location | None] = {}
        self._nodes: list[Node] = []
        self._candidates: set[int] = set()
        self._saved: dict[int, tuple[torch.UntypedStorage, torch.Tensor]] = {}
        self._allocated: dict[int, Memory] = {}
        self._modules = ModulePath({})
        self._hooks = ExitStack()
        self._hooks.enter_context(self._modules.followed())
        self.invalid: RuntimeError | None = None
        """The first CUDA error; nothing can be saved after it."""

    def fail(self, code: int, call: str) -> RuntimeError:
        """Invalidate the capture; the exception to raise."""
        error = cuda_error(code, call)
        self.invalid = self.invalid or error
        return error

    def join(self, stream: int, tail: frozenset[int]) -> None:
        """The stream waits for these nodes; one that took no part so far does from now on."""
        if stream not in self.tails:
            self._forks[stream] = callsite()
        self.tails[stream] = self.tails.get(stream, frozenset()) | tail

    def run(
        self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], on_device: bool, place: Place
    ) -> Any:
        """Execute and record an operator; its result, for the caller.

        Args:
            operator: what to run.
            args: its arguments.
            kwargs: its arguments by name.
            on_device: False for one that has nothing to do with device memory. It is a candidate: torch's composite
                operators make their temporaries "on the CPU" here, and it shows only later whether they were meant
                for the device.
            place: where its output goes.
        """
        if not operator.launches:
            result = operator.func(*args, **kwargs)
            self._claim(result, place)
            return result
        draws = on_device and operator.random and operator.argument("generator", args, kwargs) is None
        if draws and operator.takes_generator:
            kwargs = {**kwargs, "generator": self._device.generator}
            draws = False
        args = operator.complete(args, kwargs)
        node = Node(
            operator=operator,
            args=tuple(self._freeze(value, operator, on_device) for value in args),
            kwargs={name: self._freeze(value, operator, on_device) for name, value in kwargs.items()},
            outputs=(),
            after=self.tails[self._device.current_stream],
            origin=Origin(callsite(), self._modules.current, operator.name),
            draws=draws,
        )
        if on_device:
            for tensor in node.written():
                self._save(tensor)
        inputs = [memory_of(tensor) for tensor in tensors_in((args, kwargs))]
        with drawing_from(self._device.generator) if draws else nullcontext():
            result = operator.func(*args, **kwargs)
        self._claim(result, place)
        node.outputs = tuple(
            (position, tensor.detach())
            for position, tensor in enumerate(tensors_in(result))
            if memory_of(tensor) not in inputs
        )
        if result is not None and not node.outputs and not operator.written:
            return result  # a view, or an answer that the host has without asking the device
        if not on_device:
            self._candidates.add(len(self._nodes))
        self.tails[self._device.current_stream] = frozenset((len(self._nodes),))
        self._nodes.append(node)
        return result

    def adopt(self, tensor: torch.Tensor) -> None:
        """A temporary that looked like the host's is used with device tensors: it is the device's after all."""
        memory = memory_of(tensor)
        if memory is not None and id(memory) in self._allocated:
            memory.pool = self.pool

    def end(self) -> Recording:
        """Put memory and generators back, and give what was recorded. Raises what CUDA raises for a bad capture."""
        self.close()
        if self.invalid is not None:
            raise cuda_error(901)
        self._check_joined()
        allocated = [memory for memory in self._allocated.values() if memory.place is Place.DEVICE]
        for ordinal, memory in enumerate(allocated):
            memory.ordinal = ordinal
            storage = memory.storage()
            if storage is not None:
                bytes_view(storage).zero_()
        return Recording(self._kept(), self.pool, allocated, self._device.generator)

    def close(self) -> None:
        """Put memory and generators back."""
        self._hooks.close()
        for storage, copy in self._saved.values():
            bytes_view(storage).copy_(copy)
        for generator, state in zip(self.generators, self._states, strict=True):
            generator.set_state(state)
        self._saved.clear()  # an event may keep the capture alive

    def _freeze(self, value: Any, operator: Operator, on_device: bool) -> Any:
        """What a replay will find: device memory by address, host memory as it is now."""
        if isinstance(value, torch.Tensor):
            memory = memory_of(value)
            place = Place.HOST if memory is None else memory.place
            read_at_replay = place is Place.DEVICE or (
                place is Place.PINNED and (operator.kind is NodeKind.MEMCPY or not operator.torchs)
            )
            if read_at_replay or (not on_device and id(memory) in self._allocated):
                return value.detach()
            return value.detach().clone()
        if isinstance(value, (list, tuple)):
            return type(value)([self._freeze(item, operator, on_device) for item in value])
        return value

    def _save(self, tensor: torch.Tensor) -> None:
        """Keep what the tensor's storage holds, the first time that it is about to be written."""
        storage, memory = storage_of(tensor), memory_of(tensor)
        if storage is None or memory is None or memory.place is Place.HOST:
            return
        if id(memory) in self._allocated or id(memory) in self._saved:
            return
        self._saved[id(memory)] = (storage, bytes_view(storage).clone())

    def _claim(self, result: Any, place: Place) -> None:
        """Mark what an operator allocated."""
        for tensor in tensors_in(result):
            if memory_of(tensor) is None:
                memory = self._device.heap.mark(tensor, place)
                if memory is not None:
                    memory.pool = self.pool if place is Place.DEVICE else ""
                    self._allocated[id(memory)] = memory

    def _check_joined(self) -> None:
        joined = set(self.tails[self.origin])
        for index in range(len(self._nodes) - 1, -1, -1):
            if index in joined:
                joined |= self._nodes[index].after
        for stream, place in self._forks.items():
            if not self.tails[stream] <= joined:
                where = f", forked at {place.file}:{place.line}" if place else ""
                raise cuda_error(904, f"stream {stream:#x}{where}, is not waited for by the capture's own stream")

    def _kept(self) -> list[Node]:
        """The nodes without the candidates that turned out to be the host's, numbered anew."""
        kept: list[Node] = []
        place: list[frozenset[int]] = []
        for index, node in enumerate(self._nodes):
            after = frozenset(new for old in node.after for new in place[old])
            if index in self._candidates and all(place_of(tensor) is not Place.DEVICE for tensor in node.written()):
                place.append(after)
                continue
            node.after = after
            place.append(frozenset((len(kept),)))
            kept.append(node)
        return kept
