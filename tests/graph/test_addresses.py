"""What an address means, on made-up segments and a made-up driver."""

from __future__ import annotations

import struct

from cudagraph_doctor.graph.addresses import Addresses
from cudagraph_doctor.graph.driver import Allocation
from cudagraph_doctor.graph.memory import AllocatorBlock, Segment
from cudagraph_doctor.graph.model import Pointer, Region
from cudagraph_doctor.graph.regions import NamedRange, Regions

BASE = 0x7F0000000000


def segment(at: int, *sizes: int, pool: str = "", free: tuple[int, ...] = ()) -> Segment:
    """Blocks of these sizes from BASE + at on; those with an index in `free` belong to nobody."""
    blocks, address = [], BASE + at
    for index, size in enumerate(sizes):
        blocks.append(AllocatorBlock(address, size, size, index not in free))
        address += size
    return Segment(0, BASE + at, sum(sizes), pool, tuple(blocks))


class Driver:
    """Knows some allocations, counts the questions."""

    def __init__(self, *known: Allocation) -> None:
        self.known = known
        self.asked: list[int] = []

    def __call__(self, address: int) -> Allocation | None:
        self.asked.append(address)
        return next((a for a in self.known if a.address <= address < a.address + a.bytes), None)


def describe(addresses: Addresses, at: int) -> str:
    return str(addresses.describe(BASE + at))


def test_names_of_the_target_come_first() -> None:
    regions = Regions([NamedRange("weight", "w", BASE + 100, 50)])
    found = Addresses(regions, [segment(0, 512)], "", [], Driver())
    assert describe(found, 120) == 'weight "w" + 20'
    assert describe(found, 99) == "unnamed + 99"


def test_own_pool_by_segment_smallest_first() -> None:
    segments = [segment(0, 4096, pool="0.1"), segment(8192, 512, 512, pool="0.1", free=(1,)), segment(5000, 64)]
    found = Addresses(Regions(), segments, "0.1", [], Driver())
    assert describe(found, 100) == 'pool "1" + 100'
    assert describe(found, 8192) == 'pool "0"'
    assert describe(found, 8192 + 600) == 'pool "0" + 600', "a temporary is free after the capture"


def test_memory_of_another_pool_is_not_the_graphs() -> None:
    segments = [segment(0, 512, 512, pool="0.2", free=(1,))]
    found = Addresses(Regions(), segments, "0.1", [], Driver())
    assert describe(found, 8) == "unnamed + 8" and describe(found, 520) == "freed + 8"


def test_the_default_pool_is_nobodys_own() -> None:
    assert describe(Addresses(Regions(), [segment(0, 512)], "", [], Driver()), 0) == "unnamed"


def test_freed_in_the_cache_and_given_back() -> None:
    gone = [(BASE + 9000, 1000)]
    found = Addresses(Regions(), [segment(0, 512, 512, free=(1,))], "", gone, Driver())
    assert describe(found, 512) == "freed"
    assert describe(found, 9100) == "freed + 100"
    assert describe(found, 20000) == "None"


def test_memory_that_was_torchs_and_has_a_new_owner_is_not_freed() -> None:
    driver = Driver(Allocation(False, BASE + 9000, 512))
    assert describe(Addresses(Regions(), [], "", [(BASE + 9000, 1000)], driver), 9004) == "unnamed + 4"


def test_the_driver_knows_device_and_pinned_memory_and_is_asked_once() -> None:
    driver = Driver(Allocation(False, BASE, 64), Allocation(True, BASE + 100, 64))
    found = Addresses(Regions(), [], "", [], driver)
    assert [describe(found, at) for at in (4, 104, 200, 200)] == ["unnamed + 4", "pinned + 4", "None", "None"]
    assert driver.asked == [BASE + 4, BASE + 104, BASE + 200]


def test_names_do_not_make_pageable_memory_an_address_of_the_device() -> None:
    regions = Regions([NamedRange("input", "host_list", BASE, 64)])
    found = Addresses(regions, [], "", [], Driver())
    assert found.describe(BASE + 8) is None
    assert found.describe_host(BASE + 8) == Region("input", "host_list", 8)
    assert found.describe_host(BASE + 500) == Region("pageable", "", 0)


def test_memory_that_the_graph_allocates() -> None:
    found = Addresses(Regions(), [], "0.1", [], Driver())
    found.add_graph_memory(BASE, 64)
    found.add_graph_memory(BASE + 64, 64)
    assert describe(found, 70) == 'pool "alloc 1" + 6'


def test_what_was_looked_up_before_the_graph_allocated_is_looked_up_again() -> None:
    found, data = Addresses(Regions(), [], "0.1", [], Driver()), struct.pack("<Q", BASE + 6)
    assert found.pointers(data) == ()
    found.add_graph_memory(BASE, 64)
    assert found.pointers(data) == (Pointer(0, BASE + 6, Region("pool", "alloc 0", 6)),)


def test_parameters_with_the_same_bytes_are_looked_up_once() -> None:
    driver = Driver(Allocation(False, BASE, 64))
    found, data = Addresses(Regions(), [], "", [], driver), struct.pack("<QQ", BASE + 6, BASE + 100)
    assert found.pointers(data) == found.pointers(data) == (Pointer(0, BASE + 6, Region("unnamed", "", 6)),)
    assert driver.asked == [BASE + 6, BASE + 100]


def test_pointers_are_the_aligned_words_that_lie_in_known_memory() -> None:
    driver = Driver()
    found = Addresses(Regions(), [segment(0, 512)], "", [], driver)
    data = struct.pack("<QQQfI", 3, BASE + 16, BASE + 100000, 1.0, 1)
    assert found.pointers(data) == (Pointer(8, BASE + 16, Region("unnamed", "", 16)),)
    assert driver.asked == [BASE + 100000], "small numbers are no addresses"
    assert found.pointers(b"\0\0\0\0" + struct.pack("<Q", BASE + 16)) == ()
