"""Addresses of the host, and halves of addresses, among the bytes of large parameters."""

from __future__ import annotations

import struct

from cudagraph_doctor.graph.model import GraphNode, NodeKind, Param, Pointer, Region
from cudagraph_doctor.replays.remains import Memory, memory, remains, starts, varying

HEAP = ((0x4E000000, 0x50000000),)
NOTHING = Memory(HEAP, frozenset())


def struct_of(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}Q", *words)


def node(data: bytes, *addresses: int) -> GraphNode:
    pointers = tuple(Pointer(0, address, Region("pool", "0", 0)) for address in addresses)
    return GraphNode(0, NodeKind.KERNEL, "reduce", params=(Param(0, "", 0, data, pointers),))


def test_a_word_that_is_an_address_in_one_capture_is_uninitialised() -> None:
    data = [struct_of(3, 0x4EDA25E0), struct_of(3, 5)]
    assert remains(data, [NOTHING, NOTHING]) == set(range(8, 16))


def test_where_a_dump_tells_no_memory_the_usual_places_are_asked() -> None:
    data = [struct_of(0x7FFC00000000, 0x4EDA25E0), struct_of(3, 5)]
    assert remains(data, [memory([], ())] * 2) == set(range(8))


def test_an_address_of_memory_that_was_freed_since_lies_in_no_mapping() -> None:
    data = [struct_of(3, at) for at in (0x7FAD41802400, 0x7FAD51802400)]
    assert remains(data, [memory([], HEAP)] * 2) == set(range(8, 16))


def test_what_is_one_value_is_left_alone() -> None:
    assert remains([struct_of(0x4EDA25E0)], [NOTHING]) == set()
    assert remains([struct_of(at) for at in (0x7FAD41802400, 3)], [NOTHING] * 2) == set()


def test_one_value_that_can_only_be_an_address_is_nobodys_number() -> None:
    assert remains([struct_of(at) for at in (0x7FAD41802400, 0x7FAD51802400)], [NOTHING] * 2) == set(range(8))


def test_a_half_of_the_captures_own_address() -> None:
    captures = [0x7FAD41802400, 0x7FAD41A02400]
    data = [struct_of(7, (address & 0xFFFFFFFF) << 32 | 0x7FFD) for address in captures]
    own = [memory([node(one, address)], HEAP) for one, address in zip(data, captures, strict=True)]
    assert remains(data, own) == set(range(12, 16))
    assert remains(data, own[::-1]) == set()  # the same numbers, and not its own addresses


def test_halves_of_the_hosts_addresses_come_from_whole_ones() -> None:
    data = [struct_of(at, 1 << 32 | at) for at in (0x4EE64630, 0x4FB837D0)]
    own = [memory([node(one)], HEAP) for one in data]
    assert remains(data, own) == {*range(8), *range(8, 12)}


def test_a_half_that_never_changes_is_no_matter() -> None:
    data = [struct_of(7, 0x41802400)] * 2
    assert remains(data, [memory([node(data[0], 0x7FAD41802400)], HEAP)] * 2) == set()


def test_where_bytes_vary() -> None:
    assert varying([b"abcdef", b"abcdef", b"abXdeY"]) == [2, 5]
    assert varying([b"abc"]) == varying([b"", b""]) == []


def test_words_that_reach_beyond_the_end_are_left_out() -> None:
    assert starts([1, 3, 9, 13], 4, 14) == [0, 8]
