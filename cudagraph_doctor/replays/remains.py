"""Which words of a parameter are addresses of the host, or what is left of addresses? They differ by right.

A parameter that is a large struct carries what lay in its memory before: whole addresses of the host, and halves of
addresses that the capture uses elsewhere. Both may go along with a step by chance. Plain Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cudagraph_doctor.graph.model import GraphNode

Span = tuple[int, int]
"""(first address, one past the last)."""

USUAL = ((0x550000000000, 0x580000000000), (0x7E0000000000, 0x800000000000))
"""Where a Linux process has its program and heap, its libraries and stack; CUDA maps device memory there as well.

Asked besides what a dump tells: an address of memory that was freed since lies in no mapping any more.
"""
_WHOLE = 8
"""A parameter of so many bytes, or fewer, is one value: all of it was written."""
_LOWEST = 1 << 20
"""Lower halves below are too likely to be a number."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What is known of one capture's addresses."""

    host: tuple[Span, ...]
    """The host's memory."""
    halves: frozenset[bytes]
    """Lower four bytes of the addresses that its nodes have whole."""

    def has(self, word: bytes) -> bool:
        """Whether eight bytes are an address of the host."""
        address = int.from_bytes(word, "little")
        return any(start <= address < stop for start, stop in self.host)


def memory(nodes: Iterable[GraphNode], host: tuple[Span, ...]) -> Memory:
    """What one capture's nodes tell.

    Args:
        nodes: all of the capture.
        host: the host's memory; empty where that was not noted.
    """
    known = Memory((*host, *USUAL), frozenset())
    whole: set[bytes] = set()
    for node in nodes:
        for param in node.params:
            whole.update(pointer.address.to_bytes(8, "little") for pointer in param.pointers)
            if len(param.data) > _WHOLE:
                words = {param.data[at : at + 8] for at in range(0, len(param.data) - 7, 8)}
                whole.update(word for word in words if known.has(word))
    halves = frozenset(word[:4] for word in whole if int.from_bytes(word[:4], "little") >= _LOWEST)
    return Memory(known.host, halves)


def remains(data: Sequence[bytes], memories: Sequence[Memory]) -> set[int]:
    """The bytes of a parameter that lie in such words.

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
        return set(range(_WHOLE)) if len(data[0]) == _WHOLE and all(map(usual.has, data)) else found
    both = list(zip(data, memories, strict=True))
    for start in range(0, len(data[0]) - 7, 8):
        if any(known.has(one[start : start + 8]) for one, known in both):
            found.update(range(start, start + 8))
    for start in range(0, len(data[0]) - 3, 4):
        if len({one[start : start + 4] for one in data}) > 1 and all(
            one[start : start + 4] in known.halves for one, known in both
        ):
            found.update(range(start, start + 4))
    return found
