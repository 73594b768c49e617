"""Which words of a parameter are addresses of the host, or what is left of addresses? They differ by right.

A parameter that is a large struct carries what lay in its memory before: whole addresses of the host, and halves of
addresses that the capture uses elsewhere. Both may go along with a step by chance. Plain Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cudagraph_doctor.graph.arguments import words
from cudagraph_doctor.graph.model import GraphNode

Span = tuple[int, int]
"""(first address, one past the last)."""

USUAL = ((0x550000000000, 0x580000000000), (0x7E0000000000, 0x800000000000))
"""Where a Linux process has its program and heap, its libraries and stack; CUDA maps device memory there as well.

Asked besides what a dump tells: an address of memory that was freed since lies in no mapping any more.
"""
_SET = re.compile(rb"[^\0]")
"""A byte that is not zero; nearly all are, and the pattern skips them fast."""
_WHOLE = 8
"""A parameter of so many bytes, or fewer, is one value: all of it was written."""
_LOWER = (1 << 32) - 1
_LOWEST = 1 << 20
"""Lower halves below are too likely to be a number."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What is known of one capture's addresses."""

    host: tuple[Span, ...]
    """The host's memory."""
    halves: frozenset[bytes]
    """Lower four bytes of the addresses that its nodes have whole."""

    def has(self, address: int) -> bool:
        """Whether it is an address of the host."""
        return any(start <= address < stop for start, stop in self.host)


def memory(nodes: Iterable[GraphNode], host: tuple[Span, ...]) -> Memory:
    """What one capture's nodes tell.

    Args:
        nodes: all of the capture.
        host: the host's memory; empty where that was not noted.
    """
    known = Memory((*host, *USUAL), frozenset())
    addresses: set[int] = set()
    others: set[int] = set()
    for node in nodes:
        for param in node.params:
            addresses.update(pointer.address for pointer in param.pointers)
            if len(param.data) > _WHOLE:
                others.update(words(param.data))
    addresses |= {word for word in others if known.has(word)}
    lower = {address & _LOWER for address in addresses}
    return Memory(known.host, frozenset(half.to_bytes(4, "little") for half in lower if half >= _LOWEST))


def remains(data: Sequence[bytes], memories: Sequence[Memory]) -> set[int]:
    """The bytes of a parameter that lie in such words, as far as captures have different ones.

    An address of the host in one of the captures is enough, as it is uninitialised then. A half has to belong to an
    address of its own capture in all of them, and these addresses have to differ: no number does that.

    Args:
        data: the parameter as each capture has it, equally long.
        memories: what is known of each capture.
    """
    found: set[int] = set()
    if len(data[0]) <= _WHOLE:
        # written whole: where numbers do not reach, all captures have an address, of memory that nobody names
        usual = Memory(USUAL, frozenset())
        whole = len(data[0]) == _WHOLE and all(usual.has(*words(one)) for one in data)
        return set(range(_WHOLE)) if whole else found
    both = list(zip(data, memories, strict=True))
    different = varying(data)
    for start in starts(different, 8, len(data[0])):
        if any(known.has(int.from_bytes(one[start : start + 8], "little")) for one, known in both):
            found.update(range(start, start + 8))
    for start in starts(different, 4, len(data[0])):
        if all(one[start : start + 4] in known.halves for one, known in both):
            found.update(range(start, start + 4))
    return found


def varying(data: Sequence[bytes]) -> list[int]:
    """The places at which equally long stretches of bytes are not all the same, in order."""
    first, different = int.from_bytes(data[0], "little"), 0
    for one in data[1:]:
        different |= first ^ int.from_bytes(one, "little")
    return [found.start() for found in _SET.finditer(different.to_bytes(len(data[0]), "little"))]


def starts(places: Iterable[int], size: int, end: int) -> list[int]:
    """Where the aligned words of `size` bytes begin that these places lie in, but those that reach beyond `end`."""
    return sorted({place - place % size for place in places if place - place % size + size <= end})
