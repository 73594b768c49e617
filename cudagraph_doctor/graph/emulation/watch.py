"""The dispatch mode: sees every operator, tells device from host, and hands operators to a capture under way."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from cudagraph_doctor.graph.emulation.device import EmulatedDevice
from cudagraph_doctor.graph.emulation.faults import WRONG_GENERATOR
from cudagraph_doctor.graph.emulation.generators import drawing_from, is_hosts
from cudagraph_doctor.graph.emulation.legality import check
from cudagraph_doctor.graph.emulation.memory import memory_of, place_of
from cudagraph_doctor.graph.illegal import Place
from cudagraph_doctor.graph.operators import Operator, Role, decomposed, dispatches_itself, learn, tensors_in

HOST = torch.device("cpu")
DEVICE = torch.device("cpu", 0)
"""What stands for the CUDA device: torch keeps the index of a requested device, and tensors never carry it."""


def means_device(device: torch.device) -> bool:
    """Whether the emulated device is meant: "cpu:0", or "cuda" in the user's own code."""
    return device.type == "cuda" or (device.type == "cpu" and device.index is not None)


def watching(device: EmulatedDevice) -> bool:
    """Whether the operators of the calling thread are seen: dispatch modes are a thread's own."""
    modes = _get_current_dispatch_mode_stack()
    return any(isinstance(mode, Watch) and mode.device is device for mode in modes)


_HANDLERS = {
    __name__,
    "torch._ops",
    "torch.utils._device",
    "torch.utils._python_dispatch",
    "cudagraph_doctor.observation.operators",
}
"""Modules whose frames lie between an operator's caller and this mode."""


def _running_call() -> tuple[int, int, int]:
    """Identifies the Python instruction that led to the operator that is being dispatched."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in _HANDLERS:
        frame = frame.f_back
    return id(frame), id(frame.f_code), frame.f_lasti


class Watch(TorchDispatchMode):
    """Classifies every operator's memory. Thread-local, as all dispatch modes are."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled under the emulation, and torch's wrapper for that doubles the cost of an operator."""
        return False

    def __init__(self, device: EmulatedDevice) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.device = device
        self._operators: dict[Any, Operator] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operator."""
        if types and any(dispatches_itself(kind) for kind in types):
            return NotImplemented
        operator = self._operators.get(func)
        if operator is None:
            operator = self._operators[func] = learn(func)
        kwargs = kwargs or {}
        if operator.role is Role.IS_PINNED:
            return place_of(args[0]) is Place.PINNED
        if operator.role is Role.PIN:
            return self._pinned(args[0])
        if operator.composite:
            with self:
                return decomposed(operator, args, kwargs)
        on_device = self._survey(operator, args, kwargs)
        place = Place.DEVICE if on_device else Place.HOST
        if operator.takes_device:
            # C++ asks for "cpu" too when it converts a tensor where it is.
            stays = operator.role is Role.COPY and on_device and not self.device.moving_to_host
            place, kwargs = self._requested(place, kwargs, stays)
        return self._run(operator, args, kwargs, on_device, place)

    def _pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy that counts as page-locked; a CPU build has no memory of that kind."""
        if place_of(tensor) is Place.DEVICE:
            raise RuntimeError("cannot pin a tensor of the device: only dense CPU tensors can be pinned")
        pinned = tensor.clone(memory_format=torch.contiguous_format)
        self.device.heap.mark(pinned, Place.PINNED)
        return pinned

    def _run(
        self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], reads_device: bool, place: Place
    ) -> Any:
        on_device = reads_device or place is Place.DEVICE
        if on_device and operator.random:
            generator = operator.argument("generator", args, kwargs)
            if generator is not None and is_hosts(generator):
                raise RuntimeError(WRONG_GENERATOR)
        capture = self.device.recording()
        if capture is not None:
            if on_device:
                check(capture, operator, args, kwargs, place)
            result = capture.run(operator, args, kwargs, on_device, place)
        elif on_device and operator.random and operator.argument("generator", args, kwargs) is None:
            with drawing_from(self.device.generator):
                result = operator.func(*args, **kwargs)
        else:
            result = operator.func(*args, **kwargs)
        if isinstance(result, torch.Tensor):
            memory = self.device.heap.mark(result, place)
            if place is Place.HOST and operator.takes_device and memory is not None and memory.call is None:
                memory.call = _running_call()
        elif result is not None:
            for tensor in tensors_in(result):
                self.device.heap.mark(tensor, place)
        return result

    def _survey(self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether any argument lies on the device."""
        tensors = tensors_in((args, kwargs)) if kwargs else tensors_in(args)
        count = 0
        for tensor in tensors:
            memory = memory_of(tensor)
            if memory is not None and memory.place is Place.DEVICE:
                count += 1
        if 0 < count < len(tensors) and operator.torchs:
            for tensor in self._temporaries(operator, args, kwargs, tensors):
                self._adopt(tensor)
        return count > 0

    def _temporaries(
        self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Host tensors in one operator with device tensors that were meant for the device.

        torch's composite operators allocate "where their input is", and a tensor of the emulated device says "cpu" to
        C++. Where host tensors are legal (copies, indices), it tells them apart that such a temporary was made by the
        very Python instruction that is running; elsewhere CUDA refuses a host tensor that is not a scalar.
        """
        if operator.role in (Role.COPY, Role.INDEX):
            call = _running_call()
            memories = [(tensor, memory_of(tensor)) for tensor in tensors]
            return [tensor for tensor, memory in memories if memory is not None and memory.call == call]
        written = [tensor for at, name in operator.written for tensor in tensors_in(kwargs.get(name, args[at:][:1]))]
        return [tensor for tensor in tensors if tensor.dim()] + written

    def _adopt(self, tensor: torch.Tensor) -> None:
        if place_of(tensor) is not Place.PINNED:
            self.device.heap.move(tensor, Place.DEVICE)
            capture = self.device.recording()
            if capture is not None:
                capture.adopt(tensor)

    def _requested(self, place: Place, kwargs: dict[str, Any], stays: bool) -> tuple[Place, dict[str, Any]]:
        """Where the output goes, as asked by `device=` and `pin_memory=`; and the arguments that a CPU build takes.

        With `stays`, it goes where the input is, whatever `device=` says.
        """
        device, pinned = kwargs.get("device"), kwargs.get("pin_memory")
        if device is None and not pinned:
            return place, kwargs
        kwargs = dict(kwargs)
        if device is not None and device.type in ("cpu", "cuda"):
            place = Place.DEVICE if stays or means_device(device) else Place.HOST
            kwargs["device"] = HOST
        if pinned:
            place = Place.PINNED
            kwargs["pin_memory"] = False
        return place, kwargs
