"""The stand-ins for `torch.cuda`, put in place for a run and taken out after it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from cudagraph_doctor.graph.emulation import graphs, streams
from cudagraph_doctor.graph.emulation.device import (
    active,
    free_memory_bytes,
    total_memory_bytes,
)
from cudagraph_doctor.graph.emulation.faults import not_emulated, other_seed, reseeded

NAME = "emulated device (CPU)"


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
            if value is None:
                raise reseeded(what)
            if value != device.generator.initial_seed():
                raise other_seed()
            return value  # the seed that it has: torch takes that, and does nothing
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


CUDA: dict[str, Any] = {
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
NVTX = {name: _constant(0) for name in ("mark", "range_end", "range_pop", "range_push", "range_start")}
ACCELERATOR = {
    "current_accelerator": _constant(torch.device("cuda")),
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


def refused() -> dict[str, Callable[..., Any]]:
    """All public functions of `torch.cuda` without a stand-in."""
    names = set(torch.cuda.__all__) - set(CUDA) - _WORKS_AS_IT_IS
    return {name: _refusal(name) for name in sorted(names) if inspect.isfunction(getattr(torch.cuda, name, None))}
