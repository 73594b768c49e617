"""Both forms of kernel arguments, on made-up memory and on memory of this process."""

from __future__ import annotations

import ctypes
import struct

import pytest

from cudagraph_doctor.graph.arguments import (
    Argument,
    Rebuilt,
    is_tensor_map,
    packed_buffer,
    read_array,
    split_packed,
    words,
)


class Memory:
    """Made-up host memory: pieces by address."""

    def __init__(self, pieces: dict[int, bytes]) -> None:
        self.pieces = pieces

    def __call__(self, address: int, count: int) -> bytes:
        for start, data in self.pieces.items():
            if start <= address and address + count <= start + len(data):
                return data[address - start : address - start + count]
        raise AssertionError(f"{count} bytes at {address} are not this kernel's to read")


def pack(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def test_array_form() -> None:
    memory = Memory({1000: pack(2000, 3000), 2000: b"\1\2\3\4", 3000: b"abcdefgh"})
    assert read_array(1000, [(0, 4), (8, 8)], memory) == (Argument(0, b"\1\2\3\4"), Argument(8, b"abcdefgh"))
    assert read_array(0, [], memory) == ()


@pytest.mark.parametrize("extra", [(1, 2000, 2, 3000, 0), (2, 3000, 1, 2000, 0)])
def test_packed_form(extra: tuple[int, ...]) -> None:
    memory = Memory({1000: pack(*extra), 2000: b"parameters", 3000: pack(6)})
    assert packed_buffer(1000, memory) == b"parame"


def test_packed_form_that_names_no_buffer_or_something_unknown() -> None:
    with pytest.raises(ValueError, match="no buffer"):
        packed_buffer(1000, Memory({1000: pack(1, 2000, 0), 2000: b"x"}))
    with pytest.raises(ValueError, match="unknown tag 7"):
        packed_buffer(1000, Memory({1000: pack(7, 2000, 0)}))


def test_packed_parameters_are_split_where_the_layout_fits() -> None:
    assert split_packed(b"0123456789", [(0, 4), (8, 2)]) == (Argument(0, b"0123"), Argument(8, b"89"))
    assert split_packed(b"0123", [(0, 4), (4, 2)]) == split_packed(b"0123", []) == (Argument(0, b"0123"),)


@pytest.mark.parametrize(
    ("offset", "size", "major", "is_one"),
    [(48, 128, 9, True), (176, 128, 9, True), (0, 128, 9, False), (0, 128, 10, True), (48, 120, 9, False)],
)
def test_tensor_maps_are_told_by_size_and_alignment(offset: int, size: int, major: int, is_one: bool) -> None:
    assert is_tensor_map(Argument(offset, bytes(size)), major) == is_one
    assert not is_tensor_map(Argument(offset, bytes(size)), 8)  # there are none


def test_words_are_aligned_and_whole() -> None:
    assert words(pack(1, 2) + b"\xff" * 7) == (1, 2)
    assert words(b"\xff" * 7) == ()


def test_rebuilt_array_reads_back_with_the_change() -> None:
    arguments = (Argument(0, b"\1\2\3\4"), Argument(8, b"abcdefgh"))
    rebuilt = Rebuilt(arguments, {1: b"ABCDEFGH"}, None)
    assert read_array(rebuilt.address, [(0, 4), (8, 8)], ctypes.string_at) == (arguments[0], Argument(8, b"ABCDEFGH"))


def test_rebuilt_packed_form_reads_back_with_the_change_and_its_gaps() -> None:
    packed = b"0123....89"
    rebuilt = Rebuilt(split_packed(packed, [(0, 4), (8, 2)]), {0: b"abcd"}, packed)
    assert packed_buffer(rebuilt.address, ctypes.string_at) == b"abcd....89"


def test_rebuilt_without_parameters_is_an_address_all_the_same() -> None:
    assert Rebuilt((), {}, None).address
