"""Kernel arguments as a graph node holds them, read and rebuilt. Needs no GPU: memory is read through a function.

CUDA has two forms. An *array*: `kernelParams`, one pointer a parameter. *Packed*: `extra`, pairs of a tag and a
pointer, (1, buffer), (2, pointer to its size), 0; cuBLAS uses it. The rebuilt form owns its memory, so that the graph's
own copy stays as it is.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Peek = Callable[[int, int], bytes]
"""(address, count) -> that many bytes of host memory."""
Layout = Sequence[tuple[int, int]]
"""(offset, size) of each parameter in the kernel's parameter buffer."""

_END, _BUFFER, _BUFFER_SIZE = 0, 1, 2  # CU_LAUNCH_PARAM_*

_TENSOR_MAP_BYTES, _TENSOR_MAP_ALIGNMENT = 128, 64  # CUtensorMap
_BANK_OFFSETS = {9: 0x210}
_BANK_OFFSET = 0x380
"""Where parameters begin in the constant bank, which alignment counts from: on compute capability 9 (measured: a struct
aligned to 64 that is the first parameter has the offset 48), and on later ones (as disassemblers show it)."""


@dataclass(frozen=True, slots=True)
class Argument:
    """The bytes of one parameter, at its offset in the parameter buffer."""

    offset: int
    data: bytes


def is_tensor_map(argument: Argument, major: int) -> bool:
    """Whether it may be a tensor map: by its size, and by how it lies. `major`: of the device's compute capability."""
    if major < 9 or len(argument.data) != _TENSOR_MAP_BYTES:
        return False
    return (_BANK_OFFSETS.get(major, _BANK_OFFSET) + argument.offset) % _TENSOR_MAP_ALIGNMENT == 0


def _word(address: int, peek: Peek) -> int:
    return int.from_bytes(peek(address, 8), "little")


def packed_buffer(extra: int, peek: Peek) -> bytes:
    """The parameter buffer that an `extra` array points to. Raises ValueError if it names none."""
    found: dict[int, int] = {}
    while (tag := _word(extra, peek)) != _END:
        if tag not in (_BUFFER, _BUFFER_SIZE):
            raise ValueError(f"unknown tag {tag} in the kernel's packed arguments")
        found[tag] = _word(extra + 8, peek)
        extra += 16
    if len(found) < 2:
        raise ValueError("the kernel's packed arguments name no buffer")
    return peek(found[_BUFFER], _word(found[_BUFFER_SIZE], peek))


def read_array(kernel_params: int, layout: Layout, peek: Peek) -> tuple[Argument, ...]:
    """The arguments of the array form."""
    if not layout:
        return ()
    addresses = words(peek(kernel_params, 8 * len(layout)))
    return tuple(
        Argument(offset, peek(address, size)) for address, (offset, size) in zip(addresses, layout, strict=True)
    )


def split_packed(buffer: bytes, layout: Layout) -> tuple[Argument, ...]:
    """The arguments of the packed form; the buffer as one where the layout is unknown or does not fit."""
    if not layout or max(offset + size for offset, size in layout) > len(buffer):
        return (Argument(0, buffer),)
    return tuple(Argument(offset, buffer[offset : offset + size]) for offset, size in layout)


class Rebuilt:
    """Arguments with some replaced, in memory of their own; keep it until the driver has copied them."""

    def __init__(self, arguments: Sequence[Argument], replaced: Mapping[int, bytes], packed: bytes | None) -> None:
        """`packed`: the original buffer if the kernel takes the packed form, None for the array form."""
        data = [replaced.get(index, argument.data) for index, argument in enumerate(arguments)]
        self._keep: list[Any]
        if packed is None:
            values = [ctypes.create_string_buffer(value, max(len(value), 1)) for value in data]
            array = (ctypes.c_void_p * max(len(values), 1))(*(ctypes.addressof(value) for value in values))
            self._keep = [values, array]
        else:
            whole = bytearray(packed)
            for argument, value in zip(arguments, data, strict=True):
                whole[argument.offset : argument.offset + len(value)] = value
            buffer = ctypes.create_string_buffer(bytes(whole), len(whole))
            size = ctypes.c_size_t(len(whole))
            words = (_BUFFER, ctypes.addressof(buffer), _BUFFER_SIZE, ctypes.addressof(size), _END)
            array = (ctypes.c_void_p * len(words))(*words)
            self._keep = [buffer, size, array]
        self.address = ctypes.addressof(array)
        """What `kernelParams` (array form) or `extra` (packed form) has to be set to."""


def words(data: bytes) -> tuple[int, ...]:
    """The aligned 8-byte words of a parameter; a shorter rest is left out."""
    count = len(data) // 8
    return struct.unpack_from(f"<{count}Q", data)
