"""Puts the stand-ins in place for a run, and takes them out after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.utils._device import _device_constructors

from cudagraph_doctor.graph.attributes import replaced
from cudagraph_doctor.graph.emulation import graphs, tensors
from cudagraph_doctor.graph.emulation.device import EmulatedDevice, activate, deactivate
from cudagraph_doctor.graph.emulation.generators import Generator
from cudagraph_doctor.graph.emulation.torch_cuda import ACCELERATOR, CUDA, NVTX, refused
from cudagraph_doctor.graph.emulation.watch import Watch


@contextmanager
def _eager_compile() -> Iterator[None]:
    """`torch.compile` gives functions that run as they are: compiled code would pass no dispatcher."""
    compile_, stance = torch.compile, ExitStack()

    def compile_eagerly(*args: Any, **kwargs: Any) -> Any:
        # Only now, because it imports the compiler, which takes a second.
        stance.enter_context(torch.compiler.set_stance("force_eager"))
        return compile_(*args, **kwargs)

    with stance, replaced(torch, {"compile": compile_eagerly}):
        yield


@contextmanager
def _default_device_kept() -> Iterator[None]:
    """The target may set a default device; afterwards it is as before."""
    before = torch.get_default_device()
    yield
    torch.set_default_device(None if before == torch.device("cpu") else before)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Operators run on one thread: a decode step's are too small to share.

    With more, threads wait for each other by spinning: on a busy machine of two cores that took ten times as long.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def in_place(device: EmulatedDevice) -> Iterator[None]:
    """`torch.cuda` is the emulated device inside the block, in this thread; everything is put back after it."""
    # torch remembers its own factory functions at first use; the stand-ins must not get into that memory.
    _device_constructors()
    with ExitStack() as stack:
        stack.callback(setattr, graphs.graph, "default_capture_stream", None)
        activate(device)
        stack.callback(deactivate)
        stack.callback(device.abandon_capture)
        for owner, attributes in (
            (torch.cuda, refused() | CUDA | {"default_generators": (device.generator,)}),
            (torch.cuda.graphs, {name: CUDA[name] for name in ("CUDAGraph", "graph", "graph_pool_handle")}),
            (torch.cuda.streams, {name: CUDA[name] for name in ("Event", "ExternalStream", "Stream")}),
            (torch.cuda.nvtx, NVTX),
            (torch.accelerator, {n: v for n, v in ACCELERATOR.items() if hasattr(torch.accelerator, n)}),
            (torch.nn.functional, tensors.NN_FUNCTIONS),
            (torch, tensors.FUNCTIONS | {"Generator": Generator}),
            (torch.Tensor, tensors.METHODS),
        ):
            stack.enter_context(replaced(owner, attributes))
        stack.enter_context(_eager_compile())
        stack.enter_context(_one_thread())
        stack.enter_context(_default_device_kept())
        stack.enter_context(Watch(device))
        yield
