"""Bytes of one parameter through many captures."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from cudagraph_doctor.graph.model import Param, Pointer, Region
from cudagraph_doctor.replays.candidates import Kind
from cudagraph_doctor.replays.remains import memory
from cudagraph_doctor.replays.series import Captures
from cudagraph_doctor.replays.words import Differing, compare

A, B = (1, 4), (2, 4)
FOUR = Captures((A, B, A, B), (False,) * 4)


def told_of(captures: Captures, params: Sequence[Param]) -> Differing:
    """What differs, with nothing noted about the host's memory."""
    return compare(captures, params, [memory([], ())] * len(params))


def differing(*data: bytes, captures: Captures = FOUR) -> Differing:
    return told_of(captures, [Param(0, "", 0, one) for one in data])


def told(found: Differing) -> dict[Kind, list[tuple[int, int, str, Sequence[object]]]]:
    return {kind: [(p.offset, p.bytes, p.dtype, p.values) for p in parts] for kind, parts in found.parts.items()}


def test_a_number_between_constants() -> None:
    words = [struct.pack("<Qif", 1 << 40, n, 0.5) for n in (5, 6, 5, 6)]
    assert told(differing(*words)) == {Kind.VALUE: [(8, 4, "int32", (5, 6))]}


@pytest.mark.parametrize(
    ("code", "values", "size", "dtype"),
    [
        ("<f", (2.5, 3.0), 4, "float32"),
        ("<q", (128, 4096), 4, "int32"),  # its upper half is constant: the same number
        ("<d", (0.1, 0.7), 8, "float64"),
        ("<?", (False, True), 1, "uint8"),
    ],
)
def test_numbers_of_other_types(code: str, values: tuple[float, float], size: int, dtype: str) -> None:
    a, b = (struct.pack(code, value) for value in values)
    assert told(differing(a, b, a, b)) == {Kind.VALUE: [(0, size, dtype, values)]}


def test_equal_bytes_are_nothing() -> None:
    assert differing(*[bytes(range(64))] * 4) == Differing()


def test_noise_beside_a_flag_does_not_hide_it() -> None:
    # a bool and three bytes that nobody writes
    words = [bytes([flag, *rest]) for flag, rest in ((0, b"abc"), (1, b"xbc"), (0, b"xbd"), (1, b"abc"))]
    found = differing(*words)
    assert told(found) == {Kind.VALUE: [(0, 1, "uint8", (0, 1))]} and found.noise == 2


def test_noise_alone_is_counted_and_nothing_more() -> None:
    found = differing(b"aaaa", b"aaba", b"aaba", b"aaaa")
    assert not found.parts and found.noise == 1


def test_a_descriptor_is_opaque_in_one_piece() -> None:
    a = bytes(range(0x81, 0xB9)) + bytes(4) + struct.pack("<i", 5) + bytes(64)
    b = bytes(range(0x82, 0xBA)) + bytes(4) + struct.pack("<i", 6) + bytes(64)
    (part,) = told_of(FOUR, [Param(0, "", 48, one, is_descriptor=True) for one in (a, b, a, b)]).parts[Kind.OPAQUE]
    assert (part.offset, part.bytes, part.values) == (0, 61, (a[:61].hex(), b[:61].hex()))


def test_opaque_bytes_far_apart_are_two() -> None:
    a, b = (bytes([x]) * 8 + bytes(32) + bytes([x]) * 8 for x in (0xA1, 0xB2))
    assert [(p.offset, p.bytes) for p in differing(a, b, a, b).parts[Kind.OPAQUE]] == [(0, 8), (40, 8)]


def test_a_parameter_of_another_size_is_opaque() -> None:
    assert told(differing(b"ab", b"abc", b"ab", b"abc")) == {Kind.OPAQUE: [(0, 3, "", ("6162", "616263"))]}
    assert not differing(b"ab", b"abc", b"abc", b"ab").parts


def test_a_counter_is_told_at_every_capture() -> None:
    words = [struct.pack("<if", n, 0.5) for n in (7, 8, 9, 10)]
    assert told(differing(*words)) == {Kind.COUNTER: [(0, 4, "int32", (7, 8, 9, 10))]}


def test_a_counter_of_eight_bytes_is_one_number() -> None:
    words = [struct.pack("<d", x) for x in (0.1, 0.2, 0.3, 0.4)]
    assert told(differing(*words)) == {Kind.COUNTER: [(0, 8, "float64", (0.1, 0.2, 0.3, 0.4))]}


def test_what_moves_at_every_capture_and_lies_on_the_hosts_stack_is_noise() -> None:
    words = [struct.pack("<QQ", 0x7F12_0000_1000 + 64 * n, 3) for n in range(4)]
    found = differing(*words)
    assert not found.parts and found.noise == 1


def test_a_draw_shows_when_the_generators_are_elsewhere() -> None:
    captures = Captures((A, B, A, B, A, A, A), (False,) * 4 + (True,) * 3)
    words = [struct.pack("<if", 3, x) for x in (0.25, 0.25, 0.25, 0.25, 0.75, 0.5, 0.125)]
    (draw,) = differing(*words, captures=captures).parts[Kind.DRAW]
    assert (draw.offset, draw.dtype, draw.values[3:]) == (4, "float32", (0.25, 0.75, 0.5, 0.125))


def pointing(*regions: Region | None) -> list[Param]:
    """A pointer and a constant behind it; where there is no region, the word is no address."""
    params = []
    for number, region in enumerate(regions):
        address = 0x7000_0000 + 4096 * number
        pointers = (Pointer(0, address, region),) if region else ()
        params.append(Param(0, "", 0, struct.pack("<QQ", address, 7), pointers))
    return params


def test_addresses_of_the_pool_differ_by_right() -> None:
    regions = [Region("pool", "0", 512 * n) for n in range(4)]
    assert told_of(FOUR, pointing(*regions)) == Differing()


def test_the_same_name_at_other_addresses_is_the_same() -> None:
    assert told_of(FOUR, pointing(*[Region("input", "slots", 0)] * 4)) == Differing()


def test_an_offset_into_named_memory_that_moves_with_the_step() -> None:
    a, b = Region("state", "k_cache", 512), Region("state", "k_cache", 1024)
    assert told(told_of(FOUR, pointing(a, b, a, b))) == {
        Kind.ADDRESS: [(0, 8, "address", ('state "k_cache" + 512', 'state "k_cache" + 1024'))]
    }


def test_a_word_that_is_an_address_only_now_and_then_is_uninitialised() -> None:
    a, b = Region("state", "k_cache", 512), Region("state", "k_cache", 1024)
    assert told_of(FOUR, pointing(a, b, None, b)) == Differing()


def test_emulated_values_are_compared_as_they_are() -> None:
    params = [Param(1, "other", 8, bytes(8), value=value) for value in ("sum", "mean", "sum", "mean")]
    assert told(told_of(FOUR, params)) == {Kind.VALUE: [(0, 8, "value", ("sum", "mean"))]}
    lists = [Param(1, "dims", 8, bytes(8), value=value) for value in ([0, 1], [0, 2], [0, 1], [0, 2])]
    assert told(told_of(FOUR, lists)) == {Kind.VALUE: [(0, 8, "value", ([0, 1], [0, 2]))]}
    moving = [Param(1, "other", 8, bytes(8), value=value) for value in (0.5, 0.25, 0.75, 0.1)]
    assert told(told_of(FOUR, moving)) == {Kind.DRAW: [(0, 8, "value", (0.5, 0.25, 0.75, 0.1))]}
