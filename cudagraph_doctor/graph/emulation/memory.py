"""What is device memory: every storage carries a mark, and the device ones can be listed.

The mark is an attribute of the storage's Python object, which torch keeps as long as the storage itself lives.
"""

from __future__ import annotations

import bisect
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from cudagraph_doctor.graph.backend import Block
from cudagraph_doctor.graph.illegal import Place


class Memory:
    """The mark on one storage."""

    __slots__ = ("call", "held", "ordinal", "own", "place", "pool", "storage")

    def __init__(self, storage: weakref.ref[torch.UntypedStorage], place: Place, own: bool) -> None:
        self.storage = storage
        self.place = place
        self.own = own
        """Allocated by the doctor itself."""
        self.pool = ""
        """Identity of a graph's pool, as text; "" outside of captures."""
        self.ordinal = 0
        """0, 1, ... in order of allocation in its capture."""
        self.call: tuple[int, int, int] | None = None
        """The Python instruction that allocated it, for host memory that an operator with a device argument made."""
        self.held = 0
        """How many references to the storage are a recorded graph's."""


_MARK = "_cudagraph_doctor_memory"


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The tensor's storage; None for sparse and other tensors that have none."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def memory_of(tensor: torch.Tensor) -> Memory | None:
    """The mark on the tensor's storage; None if it was never seen (made by another thread, by numpy, ...)."""
    try:
        return getattr(tensor.untyped_storage(), _MARK, None)
    except (NotImplementedError, RuntimeError):
        return None


def place_of(tensor: torch.Tensor) -> Place | None:
    """Where the tensor lies; None if unknown."""
    memory = memory_of(tensor)
    return None if memory is None else memory.place


def bytes_view(storage: torch.UntypedStorage) -> torch.Tensor:
    """A uint8 tensor over the whole storage. Shape (storage.nbytes(),)."""
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage, 0, (storage.nbytes(),), (1,))


def _references(storage: torch.UntypedStorage) -> int:
    return int(torch._C._storage_Use_Count(storage._cdata))


def _own_references() -> int:
    """How many references the storage's Python object itself holds (an implementation detail of torch, so measured)."""
    tensor = torch.empty(1, device="cpu")
    storage = tensor.untyped_storage()
    return _references(storage) - 1


class Heap:
    """All storages that were seen. Device ones can be listed and found by address."""

    def __init__(self) -> None:
        self._device: dict[int, Memory] = {}
        self._listed: dict[int, Memory] = {}
        """By address, as last listed: to be asked whether it is still true."""
        self._own = False
        self._own_references = _own_references()

    def mark(self, tensor: torch.Tensor, place: Place) -> Memory | None:
        """Mark the tensor's storage unless it is marked already; the mark, or None if there is no storage."""
        storage = storage_of(tensor)
        if storage is None:
            return None
        memory: Memory | None = getattr(storage, _MARK, None)
        if memory is None:
            memory = Memory(weakref.ref(storage, self._forget), place, self._own)
            setattr(storage, _MARK, memory)
            if place is Place.DEVICE:
                self._device[id(memory.storage)] = memory
        return memory

    def move(self, tensor: torch.Tensor, place: Place) -> None:
        """Mark the tensor's storage, whatever it was marked before."""
        memory = self.mark(tensor, place)
        if memory is None or memory.place is place:
            return
        memory.place = place
        if place is Place.DEVICE:
            self._device[id(memory.storage)] = memory
        else:
            self._forget(memory.storage)

    def _forget(self, storage: weakref.ref[torch.UntypedStorage]) -> None:
        self._device.pop(id(storage), None)

    @contextmanager
    def own_memory(self) -> Iterator[None]:
        """What is marked for the first time inside the block is the doctor's own."""
        before, self._own = self._own, True
        try:
            yield
        finally:
            self._own = before

    def freed(self, memory: Memory) -> bool:
        """Whether nobody but recorded graphs refers to the storage: under CUDA it would have been freed."""
        storage = memory.storage()
        return storage is None or _references(storage) - self._own_references <= memory.held

    def device_storages(self) -> list[tuple[int, torch.UntypedStorage, Memory]]:
        """(address, storage, mark) of all device storages with at least one byte, by address; freed ones included."""
        found = []
        for memory in self._device.copy().values():
            storage = memory.storage()
            if storage is not None and storage.nbytes() and storage.data_ptr():
                found.append((storage.data_ptr(), storage, memory))
        self._listed = {address: memory for address, _, memory in found}
        return sorted(found, key=lambda entry: entry[0])

    def blocks(self) -> list[Block]:
        """The live allocations: not the doctor's own, not those that only graphs refer to."""
        found = [(address, storage.nbytes(), memory) for address, storage, memory in self.device_storages()]
        return [
            Block(address, size, memory.pool)
            for address, size, memory in found
            if not memory.own and not self.freed(memory)
        ]

    def scratch(self, pool: str) -> list[Block]:
        """The allocations of a graph's pool that only graphs refer to."""
        return [
            Block(address, storage.nbytes(), pool)
            for address, storage, memory in self.device_storages()
            if memory.pool == pool and self.freed(memory)
        ]

    def storage_at(self, address: int) -> tuple[torch.UntypedStorage, Memory] | None:
        """The device storage that `address` lies in, with its mark."""
        memory = self._listed.get(address)
        if memory is not None and id(memory.storage) in self._device:
            storage = memory.storage()
            if storage is not None and storage.data_ptr() == address and storage.nbytes():
                return storage, memory
        storages = self.device_storages()
        at = bisect.bisect_right([start for start, _, _ in storages], address) - 1
        if at < 0:
            return None
        start, storage, memory = storages[at]
        return (storage, memory) if address < start + storage.nbytes() else None
