"""The stand-ins for `torch.cuda`, put in place for a run and taken out after it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._device import _device_constructors

from cudagraph_doctor.graph.emulation import graphs, streams, tensors
from cudagraph_doctor.graph.emulation.device import (
    EmulatedDevice,
    activate,
    active,
    deactivate,
    free_memory_bytes,
    total_memory_bytes,
)
from cudagraph_doctor.graph.emulation.faults import not_emulated, reseeded
from cudagraph_doctor.graph.emulation.generators import Generator
from cudagraph_doctor.graph.emulation.watch import DEVICE, Watch

NAME = "emulated device (CPU)"
_MISSING = object()


class DeviceContext:
    """Stand-in for `torch.cuda.device` and `device_of`: there is one device."""

    def __init__(self, device: Any) -> None:
        self.idx = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


class MemPool:
    """Stand-in for `torch.cuda.MemPool`: a name for a pool; memory is not really pooled."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.id = active().new_pool()


@contextmanager
def _use_mem_pool(pool: MemPool, device: Any = None) -> Iterator[None]:
    yield


def _properties(device: Any = None) -> SimpleNamespace:
    return SimpleNamespace(
        name=NAME,
        major=0,
        minor=0,
        total_memory=total_memory_bytes(),
        multi_processor_count=os.cpu_count() or 1,
        warp_size=32,
    )


def _allocated(device: Any = None) -> int:
    return sum(block.bytes for block in active().heap.blocks())


def _seed(what: str) -> Callable[..., int]:
    def seed(value: int | None = None) -> int:
        device = active()
        if device.recording() is not None:
            raise reseeded(what)
        if value is None:
            return int(device.generator.seed())
        device.generator.manual_seed(value)
        return value

    return seed


def _get_rng_state(device: Any = None) -> torch.Tensor:
    if active().recording() is not None:
        raise reseeded("current_seed")
    state: torch.Tensor = active().generator.get_state()
    return state


def _set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    if active().recording() is not None:
        raise reseeded("set_state")
    active().generator.set_state(state)


def _constant(value: Any) -> Callable[..., Any]:
    """A function of its own for each name: torch's compiler wants no function under two."""

    def give(*args: Any, **kwargs: Any) -> Any:
        return value

    return give


_CUDA: dict[str, Any] = {
    "CUDAGraph": graphs.CUDAGraph,
    "DeviceContext": DeviceContext,
    "Event": streams.Event,
    "ExternalStream": streams.ExternalStream,
    "MemPool": MemPool,
    "Stream": streams.Stream,
    "StreamContext": streams.StreamContext,
    "_lazy_init": _constant(None),
    "_sleep": _constant(None),
    "current_device": _constant(0),
    "current_stream": streams.current_stream,
    "default_stream": streams.default_stream,
    "device": DeviceContext,
    "device_count": _constant(1),
    "device_of": DeviceContext,
    "empty_cache": _constant(None),
    "get_arch_list": _constant([]),
    "get_device_capability": _constant((0, 0)),
    "get_device_name": _constant(NAME),
    "get_device_properties": _properties,
    "get_rng_state": _get_rng_state,
    "get_rng_state_all": lambda: [_get_rng_state()],
    "get_stream_from_external": streams.ExternalStream,
    "get_sync_debug_mode": _constant(0),
    "graph": graphs.graph,
    "graph_pool_handle": graphs.graph_pool_handle,
    "init": _constant(None),
    "initial_seed": lambda: active().generator.initial_seed(),
    "ipc_collect": _constant(None),
    "is_available": _constant(True),
    "is_bf16_supported": _constant(True),
    "is_current_stream_capturing": graphs.is_current_stream_capturing,
    "is_initialized": _constant(True),
    "is_tf32_supported": _constant(False),
    "manual_seed": _seed("set_current_seed"),
    "manual_seed_all": _seed("set_current_seed"),
    "max_memory_allocated": _allocated,
    "max_memory_reserved": _allocated,
    "mem_get_info": lambda device=None: (free_memory_bytes(), total_memory_bytes()),
    "memory_allocated": _allocated,
    "memory_reserved": _allocated,
    "memory_stats": lambda device=None: {
        "allocated_bytes.all.current": _allocated(),
        "allocated_bytes.all.peak": _allocated(),
    },
    "reset_accumulated_memory_stats": _constant(None),
    "reset_max_memory_allocated": _constant(None),
    "reset_peak_memory_stats": _constant(None),
    "seed": _seed("seed"),
    "seed_all": _seed("seed"),
    "set_device": _constant(None),
    "set_rng_state": _set_rng_state,
    "set_rng_state_all": lambda states: _set_rng_state(states[0]),
    "set_stream": streams.set_stream,
    "set_sync_debug_mode": _constant(None),
    "stream": streams.StreamContext,
    "synchronize": streams.synchronize,
    "use_mem_pool": _use_mem_pool,
}
_WORKS_AS_IT_IS = {"check_error", "cudaStatus", "make_graphed_callables"}
_NVTX = {name: _constant(None) for name in ("mark", "range_end", "range_pop", "range_push")}
_ACCELERATOR = {
    "current_accelerator": _constant(DEVICE),
    "current_device_index": _constant(0),
    "current_stream": streams.current_stream,
    "device_count": _constant(1),
    "empty_cache": _constant(None),
    "is_available": _constant(True),
    "set_stream": streams.set_stream,
    "synchronize": streams.synchronize,
}


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise not_emulated(f"torch.cuda.{name}()")

    return refuse


def _refused() -> dict[str, Callable[..., Any]]:
    """All public functions of `torch.cuda` without a stand-in."""
    names = set(torch.cuda.__all__) - set(_CUDA) - _WORKS_AS_IT_IS
    return {name: _refusal(name) for name in sorted(names) if inspect.isfunction(getattr(torch.cuda, name, None))}


@contextmanager
def _replaced(owner: Any, attributes: dict[str, Any]) -> Iterator[None]:
    """The attributes have these values inside the block; afterwards what the owner itself had before."""
    before = {name: vars(owner).get(name, _MISSING) for name in attributes}
    try:
        for name, value in attributes.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            if value is not _MISSING:
                setattr(owner, name, value)
            elif name in vars(owner):
                delattr(owner, name)


@contextmanager
def _eager_compile() -> Iterator[None]:
    """`torch.compile` gives functions that run as they are: compiled code would pass no dispatcher."""
    compile_, stance = torch.compile, ExitStack()

    def compile_eagerly(*args: Any, **kwargs: Any) -> Any:
        # Only now, because it imports the compiler, which takes a second.
        stance.enter_context(torch.compiler.set_stance("force_eager"))
        return compile_(*args, **kwargs)

    with stance, _replaced(torch, {"compile": compile_eagerly}):
        yield


@contextmanager
def _default_device_kept() -> Iterator[None]:
    """The target may set a default device; afterwards it is as before."""
    before = torch.get_default_device()
    yield
    if torch.get_default_device() != before:
        torch.set_default_device(None if before == torch.device("cpu") else before)


@contextmanager
def in_place(device: EmulatedDevice) -> Iterator[None]:
    """`torch.cuda` is the emulated device inside the block, in this thread; everything is put back after it."""
    # torch remembers its own factory functions at first use; the stand-ins must not get into that memory.
    _device_constructors()
    with ExitStack() as stack:
        stack.callback(setattr, graphs.graph, "default_capture_stream", None)
        activate(device)
        stack.callback(deactivate)
        for owner, attributes in (
            (torch.cuda, _refused() | _CUDA | {"default_generators": (device.generator,)}),
            (torch.cuda.graphs, {"CUDAGraph": graphs.CUDAGraph, "graph_pool_handle": graphs.graph_pool_handle}),
            (torch.cuda.streams, {"Stream": streams.Stream, "Event": streams.Event}),
            (torch.cuda.nvtx, _NVTX | {"range_start": _constant(0)}),
            (torch.accelerator, {n: v for n, v in _ACCELERATOR.items() if hasattr(torch.accelerator, n)}),
            (torch.nn.functional, tensors.NN_FUNCTIONS),
            (torch, tensors.FUNCTIONS | {"Generator": Generator}),
            (torch.Tensor, tensors.METHODS),
        ):
            stack.enter_context(_replaced(owner, attributes))
        stack.enter_context(_eager_compile())
        stack.enter_context(_default_device_kept())
        stack.enter_context(Watch(device))
        yield
